//! The slow exact model: a bucket whose moments are fractions without rounding, with each of the rules of leases to be left out.

/// `limit` units per `period_us`, and a burst. Moments and levels are in parts of a microsecond: `limit` of them, so that a
/// unit drains in `period_us` parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) limit: u64,
    pub(super) period_us: u64,
    pub(super) burst: u64,
}

/// Which of the rules hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// A unit may be spent while it is wholly in the bucket, and not for ever.
    pub(super) ends: bool,
    /// Nothing that is given back lowers the bucket below the end of a lease.
    pub(super) floor: bool,
    /// A lease that is given back leaves the floor that it found.
    pub(super) restores: bool,
}

pub(super) const ALL: Rules = Rules { ends: true, floor: true, restores: true };

/// When the bucket is empty, and what it has to know for those who give back.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    rules: Rules,
    keeps: bool,
    empty: u128,
    floor: u128,
    birth: u64,
    given: u128,
}

/// What a spend or a lease has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    at_us: u64,
    cost: u64,
    found: u128,
    given: u128,
    birth: u64,
    end: u128,
    /// Of a lease, the floor before.
    floor: Option<u128>,
}

impl Note {
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }
}

impl Bucket {
    pub(super) fn new(rate: Rate, keeps: bool, rules: Rules) -> Self {
        Self { rate, rules, keeps, empty: 0, floor: 0, birth: 0, given: 0 }
    }

    fn parts(&self, at_us: u64) -> u128 {
        u128::from(at_us) * u128::from(self.rate.limit)
    }

    fn unit(&self) -> u128 {
        u128::from(self.rate.period_us)
    }

    fn level(&self, at_us: u64) -> u128 {
        self.empty.saturating_sub(self.parts(at_us))
    }

    pub(super) fn remaining(&self, at_us: u64) -> u64 {
        let free = u128::from(self.rate.burst) * self.unit() - self.level(at_us);
        u64::try_from(free / self.unit()).expect("it is at most the burst")
    }

    /// Spends all of it, if it fits.
    pub(super) fn spend(&mut self, at_us: u64, cost: u64) -> Option<Note> {
        (cost <= self.remaining(at_us)).then(|| self.take(at_us, cost))
    }

    /// Leases up to so many units.
    pub(super) fn lease(&mut self, at_us: u64, units: u64) -> Option<Note> {
        let units = units.min(self.remaining(at_us));
        let floor = self.floor;
        let note = (units > 0).then(|| self.take(at_us, units))?;
        self.floor = self.empty;
        Some(Note { floor: Some(floor), ..note })
    }

    fn take(&mut self, at_us: u64, cost: u64) -> Note {
        let found = self.level(at_us);
        if found == 0 {
            (self.birth, self.given) = (self.birth + 1, 0);
        }
        self.empty = self.empty.max(self.parts(at_us)) + u128::from(cost) * self.unit();
        Note { at_us, cost, found, given: self.given, birth: self.birth, end: self.empty, floor: None }
    }

    /// Until when a unit of a lease may be spent.
    pub(super) fn ends_us(&self, lease: &Note, behind: u64) -> u64 {
        if !self.rules.ends {
            return u64::MAX;
        }
        let end = (lease.end - u128::from(behind + 1) * self.unit()) / u128::from(self.rate.limit);
        u64::try_from(end).expect("it is a moment").max(lease.at_us)
    }

    /// Gives back so much of a spend.
    pub(super) fn refund(&mut self, at_us: u64, note: &Note, give: u64) {
        let drained = self.parts(at_us) - self.parts(note.at_us);
        if self.keeps {
            if note.birth != self.birth {
                return;
            }
            let before = note.found.saturating_sub(self.given - note.given);
            let left = (u128::from(note.cost) * self.unit()).saturating_sub(drained.saturating_sub(before));
            self.give(at_us, left.min(u128::from(give) * self.unit()));
        } else {
            self.give(at_us, (u128::from(give) * self.unit()).saturating_sub(drained));
        }
    }

    /// Gives back the last units of a lease.
    pub(super) fn end_lease(&mut self, at_us: u64, lease: &Note, units: u64) {
        if lease.birth != self.birth {
            return;
        }
        if self.rules.restores && self.floor == lease.end {
            self.floor = lease.floor.expect("it is a lease");
        }
        let left = lease.end.saturating_sub(self.parts(at_us));
        self.give(at_us, left.min(u128::from(units) * self.unit()));
    }

    fn give(&mut self, at_us: u64, parts: u128) {
        let (now, before) = (self.parts(at_us), self.empty);
        let lowered = before.saturating_sub(parts).max(now);
        let has_floor = self.rules.floor && self.floor > now;
        let empty = if has_floor { lowered.max(self.floor) } else { lowered };
        self.empty = empty.min(before);
        let given = before.saturating_sub(self.empty.max(now));
        // Behind a floor nobody knows who has moved.
        self.given += if has_floor && given > 0 { before.saturating_sub(now) } else { given };
    }
}
