//! All overrides of a store, as instances exchange them: [`Board`].

use std::fmt::Write as _;
use std::sync::Arc;

use super::check_name;
use super::overrides::{Override, check_operator};
use crate::key::{Key, KeyKind};
use crate::quota::Quota;

/// The last override of each policy, even if it was withdrawn. Boards of instances are merged in any order: the later override of
/// each policy wins.
///
/// Entries are sorted by policy and key. Each is one line of fields separated by tabs: version, policy, operator,
/// the times until which it is in force and remembered, its mode, its quotas, and its key in hexadecimal digits if it is for one key, or `new`
/// if it is for new keys. A store that others can read encrypts the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Board(Vec<BoardEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct BoardEntry {
    last: Arc<Override>,
    /// The end of the longest override that this one has replaced: until then, an instance that has missed this one may still
    /// report the others.
    kept_us: u64,
}

impl BoardEntry {
    /// Whether this override is the later one; for equal ones the order only has to agree on all instances.
    fn is_after(&self, other: &Self) -> bool {
        (self.last.version, self.line()) > (other.last.version, other.line())
    }

    fn line(&self) -> String {
        let Override { policy, key, new_keys, quotas, mode, by, until_us, version, .. } = &*self.last;
        let mode = mode.map(|mode| mode.to_string()).unwrap_or_default();
        let mut line = format!("{version}\t{policy}\t{by}\t{until_us}\t{}\t{mode}\t", self.kept_us);
        for (index, quota) in quotas.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}{quota}", if index == 0 { "" } else { "," });
        }
        if let Some(key) = key {
            let _ = write!(line, "\t{:02x}", key.kind() as u8);
            key.as_bytes().iter().for_each(|byte| _ = write!(line, "{byte:02x}"));
        }
        if *new_keys {
            _ = write!(line, "\t{NEW_KEYS}");
        }
        line
    }

    /// `None` for a line that this crate has not written.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let version = next()?.parse().ok()?;
        let (policy, by) = (next()?.to_owned(), next()?.to_owned());
        let (until_us, kept_us) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let mode = Some(next()?).filter(|mode| !mode.is_empty()).map(str::parse).transpose().ok()?;
        let quotas = next()?.split(',').filter(|quota| !quota.is_empty()).map(str::parse::<Quota>);
        let quotas = quotas.collect::<Result<Vec<_>, _>>().ok()?;
        let key_quotas = quotas.clone().into();
        let keys = next();
        let new_keys = keys == Some(NEW_KEYS);
        let key = keys.filter(|_| !new_keys).map(read_key);
        if key.as_ref().is_some_and(Option::is_none) {
            return None;
        }
        check_name("policy name", &policy).ok()?;
        check_operator(&by).ok()?;
        let key = key.flatten();
        let over = Override { policy, key, new_keys, quotas, key_quotas, mode, by, until_us, version };
        Some(Self { last: Arc::new(over), kept_us })
    }
}

impl Board {
    /// Reads the output of [`bytes`](Self::bytes). Unreadable bytes were not written by this crate, and are ignored.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let text = str::from_utf8(bytes).unwrap_or_default();
        let entries = text.lines().filter_map(BoardEntry::read);
        let mut board = Self::default();
        for entry in entries {
            board.set(entry);
        }
        board
    }

    /// The board as text; empty if it has no entries.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|entry| (entry.line() + "\n").into_bytes()).collect()
    }

    fn find(&self, (policy, key): (&str, Option<&Key>)) -> Result<usize, usize> {
        self.0.binary_search_by(|entry| entry.last.subject().cmp(&(policy, key)))
    }

    fn get(&self, subject: (&str, Option<&Key>)) -> Option<&BoardEntry> {
        self.find(subject).ok().and_then(|at| self.0.get(at))
    }

    fn set(&mut self, entry: BoardEntry) {
        match self.find(entry.last.subject()) {
            Ok(at) => self.0[at] = entry,
            Err(at) => self.0.insert(at, entry),
        }
    }

    /// Takes over the entries that are newer on the other board.
    pub(crate) fn learn(&mut self, other: &Self) {
        for theirs in &other.0 {
            let ours = self.get(theirs.last.subject()).unwrap_or(theirs);
            let later = if theirs.is_after(ours) { theirs } else { ours };
            let kept_us = ours.kept_us.max(theirs.kept_us);
            self.set(BoardEntry { last: Arc::clone(&later.last), kept_us });
        }
    }

    /// Whether the other board has anything to learn from this one.
    pub(crate) fn is_news_to(&self, other: &Self) -> bool {
        self.0.iter().any(|ours| other.get(ours.last.subject()).is_none_or(|theirs| ours.is_after(theirs)))
    }

    /// Forgets overrides that can no longer be in force on any instance.
    pub(crate) fn forget(&mut self, now_us: u64) {
        self.0.retain(|entry| now_us < entry.kept_us);
    }

    /// Replaces the last override of its policy or key, with a version above all others of the policy, so that a version identifies
    /// one override.
    pub(crate) fn put(&mut self, mut over: Override) -> Arc<Override> {
        let of_policy = self.0.iter().filter(|entry| entry.last.policy == over.policy);
        let version = of_policy.map(|entry| entry.last.version).max().unwrap_or(0);
        let kept_us = self.get(over.subject()).map_or(0, |entry| entry.kept_us);
        over.version = over.version.max(version.saturating_add(1));
        let kept_us = kept_us.max(over.until_us);
        let last = Arc::new(over);
        self.set(BoardEntry { last: Arc::clone(&last), kept_us });
        last
    }

    /// The last override of a policy, or of one of its keys, whether it is in force or not.
    pub(crate) fn last(&self, policy: &str, key: Option<&Key>) -> Option<&Arc<Override>> {
        self.get((policy, key)).map(|entry| &entry.last)
    }

    /// The override of a policy that is in force at this moment.
    pub(crate) fn standing(&self, policy: &str, key: Option<&Key>, now_us: u64) -> Option<&Arc<Override>> {
        self.last(policy, key).filter(|over| over.stands_at(now_us))
    }

    /// The overrides of single keys of a policy that are in force at this moment, by their keys.
    pub(crate) fn all_given(&self, policy: &str, now_us: u64) -> impl Iterator<Item = &Arc<Override>> {
        let of_policy = self.all_standing(now_us).filter(move |over| over.policy == policy);
        of_policy.filter(|over| over.key.is_some())
    }

    /// All overrides that are in force at this moment, by the names of their policies.
    pub(crate) fn all_standing(&self, now_us: u64) -> impl Iterator<Item = &Arc<Override>> {
        self.0.iter().map(|entry| &entry.last).filter(move |over| over.stands_at(now_us))
    }

    /// The moment until which any entry counts.
    pub(crate) fn kept_us(&self) -> u64 {
        self.0.iter().map(|entry| entry.kept_us).max().unwrap_or(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The word that stands for all new keys.
const NEW_KEYS: &str = "new";

/// Reads a key of its kind and its parts in hexadecimal digits.
fn read_key(text: &str) -> Option<Key> {
    let pairs = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    let bytes = pairs.collect::<Option<Vec<u8>>>().filter(|_| text.len().is_multiple_of(2))?;
    let (kind, parts) = bytes.split_first()?;
    Some(Key::encoded(KeyKind::read(*kind), parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyMode;

    fn over(policy: &str, quota: &str, by: &str, now_us: u64) -> Override {
        Override::builder(policy, by).quota(quota).until_us(now_us + 100).build(now_us).unwrap()
    }

    fn board(overrides: impl IntoIterator<Item = Override>) -> Board {
        let mut board = Board::default();
        for over in overrides {
            board.put(over);
        }
        board
    }

    #[test]
    fn a_board_reads_back_as_it_was_written_and_nothing_else_is_read() {
        let mut full = board([over("login", "5/min burst 3", "ada l.", 1), over("search", "7/s", "bob", 2)]);
        full.put(Override::withdrawal("search", None, "eve", 3).unwrap());
        for key in [Key::from("acme"), Key::from(("a\tb\n", 7))] {
            full.put(Override::builder("login", "ada").quota("9/min").key(key).build(1).unwrap());
        }
        full.put(Override::builder("mail", "ada").quota("9/min").new_keys().build(1).unwrap());
        for mode in [PolicyMode::Enforce, PolicyMode::Shadow, PolicyMode::Off] {
            full.put(Override::builder(mode.to_string(), "ada").mode(mode).build(1).unwrap());
        }
        assert_eq!(Board::read(&full.bytes()), full);
        for garbage in [
            &b"\xff\xfe"[..],
            b"OK",
            b"1\tlogin\tada",
            b"1\tLogin!\tada\t9\t9\t\t5/min",
            b"1\tlogin\tada\t9\t9\tloud\t5/min",
            b"1\tlogin\tada\t9\t9\t\t5/min\t020",
            b"1\tlogin\tada\t9\t9\t\t5/min\tzz",
            b"1\tlogin\tada\t9\t9\t\t5/min\t",
        ] {
            assert_eq!(Board::read(garbage), Board::default(), "{garbage:?}");
        }
    }

    #[test]
    fn boards_that_went_different_ways_agree_whoever_learns_first() {
        let common = board([over("login", "5/min", "ada", 1)]);
        let (mut one, mut other) = (common.clone(), common);
        one.put(Override::withdrawal("login", None, "bob", 5).unwrap());
        other.put(over("login", "9/min", "eve", 7));
        other.put(over("search", "7/s", "eve", 8));
        assert!(one.is_news_to(&Board::default()) && other.is_news_to(&one));
        let (one_before, other_before) = (one.clone(), other.clone());
        one.learn(&other_before);
        other.learn(&one_before);
        assert_eq!(one, other);
        assert!(!one.is_news_to(&other));
        assert_eq!(one.standing("login", None, 10).map(|over| over.by()), Some("eve"));
    }

    /// An instance that missed a withdrawal would report the override until its original end.
    #[test]
    fn what_ended_an_override_is_remembered_as_long_as_that_would_have_stood() {
        let mut board = board([over("login", "5/min", "ada", 1)]);
        let stale = board.clone();
        board.put(Override::withdrawal("login", None, "bob", 5).unwrap());
        board.forget(100);
        board.learn(&stale);
        assert_eq!(board.standing("login", None, 100), None);
        board.forget(101);
        assert_eq!((board.len(), stale.standing("login", None, 101)), (0, None));
    }

    #[test]
    fn versions_rise_when_the_clock_goes_back() {
        let mut board = board([over("login", "5/min", "ada", 50)]);
        assert_eq!(board.put(over("login", "6/min", "ada", 10)).version(), 51);
    }
}
