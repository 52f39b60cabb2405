//! How many lines came to what: [`Counts`].
//!
//! A line counts once as read, and once more as outside, exempt, blocked or not understood if it is that.
//!
//! Each thread that reads has its own, and they are summed when all have ended; so no line is counted under a lock.

/// How many lines are shown that were not understood.
pub(crate) const SHOWN: usize = 10;

/// A line that was not understood.
///
/// The places of all of them are kept so that the first ten of the log are shown, and not the first ten that some thread has met.
#[derive(Clone, Debug)]
pub(crate) struct Puzzle {
    /// How many batches were read before.
    pub(crate) batch: u64,
    /// The place of the log among all.
    pub(crate) log: usize,
    /// The number of the line in its log.
    pub(crate) line: u64,
    pub(crate) reason: &'static str,
    /// How it begins, unless lines are hidden.
    pub(crate) begins: Option<String>,
}

/// How many lines came to what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// All lines, whatever became of them.
    pub(crate) read: u64,
    /// Whether a line was taken at the time that it has, because it does not say how long the request took.
    pub(crate) is_as_logged: bool,
    /// Lines before or after the time that was asked for.
    pub(crate) outside: u64,
    /// Requests that no limit is for.
    pub(crate) exempt: u64,
    /// Requests that are denied before all limits.
    pub(crate) blocked: u64,
    pub(crate) not_understood: u64,
    /// The first of these.
    pub(crate) shown: Vec<Puzzle>,
    /// Why each limit was not asked, and how often.
    pub(crate) left_out: LeftOut,
}

impl Counts {
    /// Both together.
    ///
    /// The shown lines of both are put in the order of the log again, and cut off at [`SHOWN`].
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.read += other.read;
        self.is_as_logged |= other.is_as_logged;
        self.outside += other.outside;
        self.exempt += other.exempt;
        self.blocked += other.blocked;
        self.not_understood += other.not_understood;
        self.shown.extend(other.shown);
        self.shown.sort_unstable_by_key(|puzzle| (puzzle.batch, puzzle.line));
        self.shown.truncate(SHOWN);
        for (limit, reasons) in other.left_out.0.into_iter().enumerate() {
            reasons.iter().for_each(|(reason, count)| self.left_out.add(limit, reason, *count));
        }
        self
    }
}

/// Why limits were not asked, and how often. Each has few reasons, however many requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut(Vec<Vec<(String, u64)>>);

impl LeftOut {
    /// Counts requests of the limit in this place, by a reason. Reasons are few, so they are looked for one after the other.
    pub(crate) fn add(&mut self, limit: usize, reason: &str, count: u64) {
        if self.0.len() <= limit {
            self.0.resize(limit + 1, Vec::new());
        }
        match self.0[limit].iter_mut().find(|(known, _)| known == reason) {
            Some((_, known)) => *known += count,
            None => self.0[limit].push((reason.to_owned(), count)),
        }
    }

    /// The place of the limit, the reason, and how often.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        self.0.iter().enumerate().flat_map(|(limit, reasons)| {
            reasons.iter().map(move |(reason, count)| (limit, &**reason, *count))
        })
    }
}
