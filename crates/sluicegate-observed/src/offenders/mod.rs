//! The keys that are refused most, and those that ask most: [`Offenders`].

mod sketch;

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::clock::micros;
use sluicegate_core::key::{Key, KeyKind, KeyRef};
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::support::lock;

use crate::offenders::sketch::{Frequent, InTurn, RefusedKeys};

/// The number of refused keys that are counted. With n of them, each key with more than one in n of the refusals is listed.
const REFUSED: usize = 64;

/// The number of asking keys that are counted.
const ASKING: usize = 12;

/// One in this many asks is looked at to find the keys that ask most.
const SAMPLED: u64 = 64;

/// The keys of a policy that were refused most in the last 5 to 10 minutes, and those that asked most, in at most 16 KiB; in floods,
/// up to 32 KiB more.
#[derive(Debug)]
pub(super) struct Offenders {
    refused: RefusedKeys,
    asking: Mutex<InTurn>,
}

impl Offenders {
    /// An empty list.
    pub(super) fn new() -> Self {
        Self { refused: RefusedKeys::new(REFUSED), asking: Mutex::new(InTurn::new(ASKING)) }
    }

    /// Counts a refused request with this key, with its wait, if one helps, and whether the key is suspended.
    pub(super) fn refused(
        &self,
        key: KeyRef<'_>,
        retry_after: Option<Duration>,
        is_suspended: bool,
        now_us: u64,
    ) {
        let until_us = now_us.saturating_add(micros(retry_after.unwrap_or_default()));
        self.refused.count(key, RefusalNote { until_us, is_suspended }.note(), now_us);
    }

    /// Counts a request with this key, one in [`SAMPLED`], which left its quotas in these states. It is skipped if another thread
    /// holds the lock.
    pub(super) fn asked<'a>(
        &self,
        key: KeyRef<'_>,
        quotas: impl Iterator<Item = &'a QuotaStatus>,
        now_us: u64,
    ) {
        if let Ok(mut asking) = self.asking.try_lock() {
            let left = quotas.map(left).min().unwrap_or(0);
            asking.count(key.digest(), || CutKey::of(key), left, now_us);
        }
    }

    /// Notes that a key is released, so that no earlier refusal says that it is suspended or has to wait.
    pub(super) fn released(&self, key: KeyRef<'_>, now_us: u64) {
        self.refused.counted(now_us).forget_note(key.digest());
    }

    /// The keys that were refused most, the one with the most certain refusals first.
    pub(super) fn most_refused(&self, now_us: u64) -> Vec<Offender> {
        let (total, keys) = self.refused.counted(now_us).frequent(now_us);
        keys.iter().map(|key| Offender::new(key, total, now_us)).collect()
    }

    /// The keys that asked most.
    pub(super) fn most_asking(&self, now_us: u64) -> Vec<Asker> {
        let (_, keys) = lock(&self.asking).frequent(now_us);
        keys.iter().map(Asker::new).collect()
    }

    /// The key that is listed with this [reference](Offender::reference), unless the key is too long to be kept whole.
    pub(super) fn find(&self, reference: &str) -> Option<Key> {
        let digest = digest(reference)?;
        let key = self.refused.find(digest).or_else(|| lock(&self.asking).find(digest).copied())?;
        key.whole()
    }
}

impl Default for Offenders {
    fn default() -> Self {
        Self::new()
    }
}

// A key as it is listed: [`Offender`], [`Asker`].

/// The note that stands for the whole burst.
const WHOLE: u64 = 1_000;

/// A key that was refused often. All keys with more than one in 64 of their policy's refusals in the last 5 to 10 minutes
/// are listed, and some with fewer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Offender {
    /// The key as it may be shown to operators: in clear, or as its digest.
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// The digest of the key, whether it is shown or not: valid within this process only, and the same as in its logs.
    pub digest: String,
    /// Names the key in [`Observed::listed_key`](crate::Observed::listed_key) for as long as it is listed; it reveals nothing
    /// about the key.
    pub reference: String,
    /// The number of refusals, at most [`error`](Self::error) too high.
    pub rejected: u64,
    /// The most by which [`rejected`](Self::rejected) may be too high.
    pub error: u64,
    /// The share of all refusals, 0 to 1.
    pub share: f64,
    /// The wait until the key may pass again, from its last refusal; up to one second too long, and zero if the wait is over
    /// or no wait helps.
    pub retry_after: Duration,
    /// The end of the suspension, if the key is suspended, from its last refusal.
    pub suspended_until: Option<SystemTime>,
}

/// A key that asked often, refused or not, found by looking at one ask in 64.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Asker {
    /// As [`Offender::key`].
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// As [`Offender::digest`].
    pub digest: String,
    /// As [`Offender::reference`].
    pub reference: String,
    /// The approximate number of its asks in the last 5 to 10 minutes.
    pub asked: u64,
    /// The most by which [`asked`](Self::asked) may be too high: by keys that share its place, and by chance.
    pub error: u64,
    /// The share of its burst that was left at the last look: 0 to 1, rounded down.
    pub remaining: f64,
}

/// A key as it may be shown to operators: `203.0.113.9`, or `digest 3fb21c90` of what may be a secret. A long key lacks its
/// end.
///
/// ```
/// use std::net::Ipv4Addr;
/// use sluicegate_core::Key;
/// use sluicegate_observed::ShownKey;
///
/// assert_eq!(ShownKey::of(&Key::from(Ipv4Addr::LOCALHOST)).to_string(), "127.0.0.1");
/// assert!(ShownKey::of(&Key::from("sk_live_51H")).to_string().starts_with("digest "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownKey {
    /// As [`Offender::key`].
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// As [`Offender::digest`].
    pub digest: String,
}

impl ShownKey {
    /// The shown form of a key.
    pub fn of(key: &Key) -> Self {
        Self::of_ref(key.as_ref())
    }

    pub(crate) fn of_ref(key: KeyRef<'_>) -> Self {
        let (key, kind, digest, _) = shown(key.digest(), &CutKey::of(key));
        Self { key, kind, digest }
    }
}

impl fmt::Display for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OffenderKind::Digest => write!(f, "digest {}", self.key),
            _ => f.write_str(&self.key),
        }
    }
}

/// How a key is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OffenderKind {
    /// An address, in clear.
    Address,
    /// A name, in clear.
    Name,
    /// A digest of what may be a secret, or of a key that is a digest itself.
    Digest,
}

impl OffenderKind {
    /// The name of the kind: `address`, `name` or `digest`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Name => "name",
            Self::Digest => "digest",
        }
    }
}

/// The note of an ask: the share of the burst that is left, rounded down.
fn left(status: &QuotaStatus) -> u64 {
    let left = u128::from(status.remaining()) * u128::from(WHOLE) / u128::from(status.capacity().max(1));
    u64::try_from(left).unwrap_or(WHOLE)
}

/// The note of a refusal.
#[derive(Clone, Copy)]
struct RefusalNote {
    until_us: u64,
    is_suspended: bool,
}

impl RefusalNote {
    /// The note as one number; the time stays far below the bit that is lost.
    fn note(self) -> u64 {
        self.until_us.min(u64::MAX >> 1) << 1 | u64::from(self.is_suspended)
    }

    fn read(note: u64) -> Self {
        Self { until_us: note >> 1, is_suspended: note & 1 == 1 }
    }
}

impl Offender {
    /// Whether more than half of the count is certain. In a flood of keys that come a few
    /// times each, no key stands out; a key with more than one in 32 of the refusals always does.
    pub fn stands_out(&self) -> bool {
        self.rejected > self.error.saturating_mul(2)
    }

    fn new(of: &Frequent, total: u64, now_us: u64) -> Self {
        let (key, kind, digest, reference) = shown(of.digest, &of.key);
        let RefusalNote { until_us, is_suspended } = RefusalNote::read(of.note);
        let until = UNIX_EPOCH.checked_add(Duration::from_micros(until_us));
        Self {
            key,
            kind,
            digest,
            reference,
            rejected: of.count,
            error: of.error,
            share: ratio(of.count, total),
            retry_after: Duration::from_micros(until_us.saturating_sub(now_us)),
            suspended_until: until.filter(|_| is_suspended && until_us > now_us),
        }
    }
}

impl Asker {
    /// As [`Offender::stands_out`].
    pub fn stands_out(&self) -> bool {
        self.asked > self.error.saturating_mul(2)
    }

    fn new(of: &Frequent) -> Self {
        let (key, kind, digest, reference) = shown(of.digest, &of.key);
        let asked = of.count.saturating_mul(SAMPLED);
        // The standard deviation of a random count is its square root.
        let error = (of.error + of.count.isqrt()).saturating_mul(SAMPLED);
        Self { key, kind, digest, reference, asked, error, remaining: ratio(of.note, WHOLE) }
    }
}

/// The key as it may be shown, the kind of that form, its digest, and its reference.
pub(crate) fn shown(digest: u64, key: &CutKey) -> (String, OffenderKind, String, String) {
    // The digest as `Debug` shows it.
    let (short, reference) = (format!("{:08x}", digest >> 32), format!("{digest:016x}"));
    match (key.plain(), key.kind()) {
        (Some(plain), KeyKind::Address) => (plain, OffenderKind::Address, short, reference),
        (Some(plain), _) => (plain, OffenderKind::Name, short, reference),
        (None, _) => (short.clone(), OffenderKind::Digest, short, reference),
    }
}

/// The key that a reference stands for.
pub(crate) fn digest(reference: &str) -> Option<u64> {
    u64::from_str_radix(reference, 16).ok().filter(|_| reference.len() == 16)
}

#[expect(clippy::cast_precision_loss, reason = "to be shown with two digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

// A key in a fixed number of bytes: [`CutKey`].

/// The bytes of a name that are kept.
const NAME: usize = 64;

/// A key, or the beginning of a long one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutKey {
    kind: KeyKind,
    length: u8,
    is_whole: bool,
    /// Encoded, with a tag and a length before the name.
    bytes: [u8; NAME + 2],
}

impl CutKey {
    /// Cuts a key to the bytes that are kept.
    pub(crate) fn of(key: KeyRef<'_>) -> Self {
        let (begin, is_whole) = key.begin(NAME);
        let encoded = begin.as_bytes();
        let mut bytes = [0; NAME + 2];
        let length = encoded.len().min(bytes.len());
        bytes[..length].copy_from_slice(&encoded[..length]);
        // It is at most 66.
        let length = u8::try_from(length).unwrap_or(u8::MAX);
        Self { kind: key.kind(), length, is_whole, bytes }
    }

    /// The kind of the key.
    pub(crate) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The key, if it was not cut.
    pub(crate) fn whole(&self) -> Option<Key> {
        self.is_whole.then(|| self.kept())
    }

    /// The key as text, perhaps without its end; `None` for a secret and for a key with a digest in it.
    pub(crate) fn plain(&self) -> Option<String> {
        let plain = self.kept().in_clear()?;
        Some(if self.is_whole { plain } else { plain.trim_end_matches('…').to_owned() + "…" })
    }

    fn kept(&self) -> Key {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes);
        Key::encoded(self.kind, bytes)
    }
}

#[cfg(test)]
mod cut_tests {
    use super::*;
    use sluicegate_core::key::AsKey;

    fn cut(key: impl AsKey) -> CutKey {
        key.with_key(CutKey::of)
    }

    #[test]
    fn a_name_is_kept_up_to_64_bytes() {
        let name = |length: usize| Key::from("x".repeat(length)).of_kind(KeyKind::Name);
        for length in [0, 1, 53, 54, 64] {
            assert_eq!(cut(name(length)).whole(), Some(name(length)), "{length} bytes");
        }
        for length in [65, 127, 128, 20_000] {
            let long = cut(name(length));
            let shown = long.plain().unwrap();
            assert!(long.whole().is_none() && shown.ends_with('…'), "{length} bytes: {shown}");
            let kept = shown.matches('x').count();
            assert!((60..=64).contains(&kept), "{length} bytes: {kept} are kept");
        }
    }

    #[test]
    fn a_long_key_of_several_parts_shows_those_that_are_whole() {
        let parts = Key::from(("/login", "x".repeat(300), 7)).of_kind(KeyKind::Name);
        let shown = cut(&parts).plain().unwrap();
        assert!(shown.starts_with("\"/login\" \"xxx") && shown.ends_with('…'), "{shown}");
        let number = Key::from(("x".repeat(57), 7)).of_kind(KeyKind::Name);
        assert_eq!(cut(&number).plain().unwrap(), format!("{:?} …", "x".repeat(57)));
        let umlauts = Key::from("ä".repeat(100)).of_kind(KeyKind::Name);
        assert!(!cut(&umlauts).plain().unwrap().contains(char::REPLACEMENT_CHARACTER));
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        assert_eq!((cut("sk_live_51H").plain(), cut("sk_live_51H".repeat(99)).plain()), (None, None));
    }
}

#[cfg(test)]
mod tests;
