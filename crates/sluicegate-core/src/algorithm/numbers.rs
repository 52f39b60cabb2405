//! The integers of a rule: [`Numbers`].

/// The integers of a rule, for stores that decide in another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    kind: u8,
    starts_short: bool,
    count: usize,
    numbers: [u64; Self::MOST],
}

impl Numbers {
    /// The most numbers that a rule has.
    pub const MOST: usize = 6;

    /// Stands for a level that is never reached.
    pub const NONE: u64 = u64::MAX;

    pub(super) fn new(kind: u8) -> Self {
        Self { kind, starts_short: false, count: 0, numbers: [0; Self::MOST] }
    }

    pub(super) fn then(mut self, number: u64) -> Self {
        if let Some(next) = self.numbers.get_mut(self.count) {
            *next = number;
            self.count = self.count.saturating_add(1);
        }
        self
    }

    /// The numbers of this bucket for newcomers that lack this many units.
    pub(super) fn of_newcomers(mut self, missing: u64) -> Self {
        self.starts_short = true;
        if let Some(last) = self.numbers.last_mut() {
            *last = missing;
        }
        self
    }

    /// The numbers of these windows by the periods of a calendar.
    pub(super) fn in_calendar(mut self, id: u32) -> Self {
        self.kind = 5;
        let [.., border, _] = &mut self.numbers;
        *border = id.into();
        self
    }

    /// The number of the algorithm: 1 for GCRA, 2 for fixed windows, 3 for sliding counters, 4 for sliding logs, 5 for windows of a
    /// calendar.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Whether [newcomers](super::Starting) lack units of a burst; the last number then says how many.
    pub fn starts_short(&self) -> bool {
        self.starts_short
    }

    /// The numbers, in the order that the algorithm's type names them; behind them zeros. [`NONE`](Self::NONE) stands for a
    /// level that is never reached.
    pub fn all(&self) -> [u64; Self::MOST] {
        self.numbers
    }
}
