//! Counts of lines by their fate: [`ReadCounts`].
//!
//! A line counts once as read, and once more if it is outside, exempt, blocked or not understood.
//!
//! Each parsing thread has its own counts, which are summed when all threads have ended, so no line is counted under a lock.

use crate::read::Marks;

/// The most lines that are shown among those that were not understood.
pub(crate) const SHOWN: usize = 10;

/// A line that was not understood.
///
/// The positions of such lines are kept, so that the first ten of the log are shown, and not the first ten of some thread.
#[derive(Clone, Debug)]
pub(crate) struct Puzzle {
    /// The number of batches that were read before.
    pub(crate) batch: u64,
    /// The place of the log among all.
    pub(crate) log: usize,
    /// The number of the line in its log.
    pub(crate) line: u64,
    pub(crate) reason: &'static str,
    /// The beginning of the line, unless lines are hidden.
    pub(crate) begins: Option<String>,
}

/// Counts of lines by their fate.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCounts {
    /// All lines, whatever their fate.
    pub(crate) read: u64,
    /// Whether a line was replayed at its logged time, because it does not say how long the request took.
    pub(crate) is_as_logged: bool,
    /// Lines before or after the requested time.
    pub(crate) outside: u64,
    /// Requests without a limit.
    pub(crate) exempt: u64,
    /// Requests that are denied before any limit.
    pub(crate) blocked: u64,
    pub(crate) not_understood: u64,
    /// The first lines that were not understood.
    pub(crate) shown: Vec<Puzzle>,
    /// The reasons for which each limit was not asked, with counts.
    pub(crate) left_out: LeftOutCounts,
    /// The texts of user agents and paths.
    pub(crate) marks: Marks,
}

impl ReadCounts {
    /// Adds the counts of another thread.
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
        self.marks = self.marks.and(other.marks);
        for (limit, reasons) in other.left_out.0.into_iter().enumerate() {
            reasons.iter().for_each(|(reason, count)| self.left_out.add(limit, reason, *count));
        }
        self
    }
}

/// The reasons for which limits were not asked, with counts. Each limit has few reasons, however many requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOutCounts(Vec<Vec<(String, u64)>>);

impl LeftOutCounts {
    /// Counts requests of the limit at this index, by a reason. Reasons are few, so they are searched linearly.
    pub(crate) fn add(&mut self, limit: usize, reason: &str, count: u64) {
        if self.0.len() <= limit {
            self.0.resize(limit + 1, Vec::new());
        }
        match self.0[limit].iter_mut().find(|(known, _)| known == reason) {
            Some((_, known)) => *known += count,
            None => self.0[limit].push((reason.to_owned(), count)),
        }
    }

    /// The place of the limit, the reason, and the count.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        self.0.iter().enumerate().flat_map(|(limit, reasons)| {
            reasons.iter().map(move |(reason, count)| (limit, &**reason, *count))
        })
    }
}
