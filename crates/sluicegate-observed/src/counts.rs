//! The counts of a policy: [`PolicyCounts`].
//!
//! A request is in exactly one counter, by its mode, its answer and the decider, so the sum of these counters is the number of
//! requests. Units and nearly used-up quotas have counters of their own. All counters are places in one array, so
//! a request touches one or two cache lines of its thread.

use metrics::Key;
use sluicegate_core::store::{DecidedBy, Mode, QuotaStatus};
use sluicegate_core::{Decision, Outcome};

use crate::budgets::PERCENTS;
use crate::lanes::Lanes;
use crate::metrics::{BUDGET_WARNINGS, NEAR, QUOTAS_REFUSED, REQUESTS, SUSPENSIONS, UNITS, series};
use crate::snapshot::{Totals, UnitTotals};

const SPENT_UNITS: usize = 0;
const REFUNDED: usize = 1;
const CHARGED: usize = 2;
const NEAR_ITS_LIMIT: usize = 3;
const SUSPENDED: usize = 4;
/// The first of the counts of requests, one for each mode, answer and decider. The most frequent are in the first cache line.
const REQUEST: usize = 5;
const MODES: usize = 2;
const ANSWERS: usize = Answer::ALL.len();
/// In the order of [`of_whom`].
pub(super) const ALL_WHO_DECIDE: [DecidedBy; 5] =
    [DecidedBy::Store, DecidedBy::Fallback, DecidedBy::Lease, DecidedBy::Cache, DecidedBy::Outage];
/// The last counters, because they are the rarest.
const REFUSED_QUOTAS: usize = REQUEST + MODES * ANSWERS * ALL_WHO_DECIDE.len();
const BUDGET_PARTS: usize = REFUSED_QUOTAS + 1;
const COUNTERS: usize = BUDGET_PARTS + PERCENTS.len();

/// The counts of a policy, in all its modes.
pub(super) struct PolicyCounts(Lanes<COUNTERS>);

/// The sums of one moment.
#[derive(Clone, Copy)]
pub(super) struct Sums(pub(super) [u64; COUNTERS]);

impl PolicyCounts {
    pub(super) fn new() -> Self {
        Self(Lanes::new())
    }

    #[inline(always)]
    pub(super) fn request(&self, judgement: &Judgement, is_shadow: bool) {
        let Judgement { answer, by, spent, is_near } = *judgement;
        let counter = place(is_shadow, answer, by);
        self.0.add([(counter, 1), (SPENT_UNITS, spent), (NEAR_ITS_LIMIT, is_near.into())]);
    }

    pub(super) fn leased(&self, units: u64) {
        self.0.add([(SPENT_UNITS, units)]);
    }

    pub(super) fn refunded(&self, units: u64) {
        self.0.add([(REFUNDED, units)]);
    }

    pub(super) fn charged(&self, units: u64) {
        self.0.add([(CHARGED, units)]);
    }

    pub(super) fn suspended(&self) {
        self.0.add([(SUSPENDED, 1)]);
    }

    pub(super) fn quotas_refused(&self) {
        self.0.add([(REFUSED_QUOTAS, 1)]);
    }

    /// Counts a warning, by its place in [`PERCENTS`].
    pub(super) fn budget_used(&self, part: usize) {
        self.0.add([(BUDGET_PARTS + part, 1)]);
    }

    pub(super) fn sums(&self) -> Sums {
        Sums(self.0.sums())
    }
}

impl Sums {
    /// Requests with this answer, by any decider, in both modes.
    pub(super) fn of(&self, answer: Answer) -> u64 {
        let each =
            [false, true].into_iter().flat_map(|mode| ALL_WHO_DECIDE.map(|by| place(mode, answer, by)));
        each.map(|counter| self.0[counter]).sum()
    }

    /// Requests that were refused by an enforced policy.
    pub(super) fn refused(&self) -> u64 {
        let refusals = Answer::ALL.into_iter().filter(|answer| answer.is_refusal());
        let each = refusals.flat_map(|answer| ALL_WHO_DECIDE.map(|by| place(false, answer, by)));
        each.map(|counter| self.0[counter]).sum()
    }

    /// All requests.
    pub(super) fn requests(&self) -> u64 {
        self.0[REQUEST..REFUSED_QUOTAS].iter().sum()
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            allowed: self.of(Answer::Allowed),
            delayed: self.of(Answer::Delayed),
            rejected: self.of(Answer::Rejected),
            impossible: self.of(Answer::Impossible),
            suspended: self.of(Answer::Suspended),
            other_refused: self.of(Answer::OtherRefused),
            outage: self.of(Answer::Outage),
            error: self.of(Answer::Error),
        }
    }

    pub(super) fn units(&self) -> UnitTotals {
        UnitTotals { spent: self.0[SPENT_UNITS], refunded: self.0[REFUNDED], charged: self.0[CHARGED] }
    }

    pub(super) fn quotas_refused(&self) -> u64 {
        self.0[REFUSED_QUOTAS]
    }

    pub(super) fn near(&self) -> u64 {
        self.0[NEAR_ITS_LIMIT]
    }
}

/// The subject of counts: its name is a label of their series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Policy,
    /// A limit on requests at once, which may have the name of a policy.
    Permits,
}

/// The series of a count of this policy, or of the limit on requests at once of this name.
pub(super) fn series_of(kind: Counted, policy: &str, counter: usize) -> Key {
    let policy = ("policy", policy);
    let units = |kind| series(UNITS, [policy, ("kind", kind)]);
    match counter {
        SPENT_UNITS => units("spent"),
        REFUNDED => units("refunded"),
        CHARGED => units("charged"),
        NEAR_ITS_LIMIT => series(NEAR, [policy]),
        SUSPENDED => series(SUSPENSIONS, [policy]),
        REFUSED_QUOTAS => series(QUOTAS_REFUSED, [policy]),
        part if part >= BUDGET_PARTS => {
            series(BUDGET_WARNINGS, [policy, ("percent", &PERCENTS[part - BUDGET_PARTS].to_string())])
        }
        request => {
            let (of_whom, answer) = ((request - REQUEST) / ANSWERS, (request - REQUEST) % ANSWERS);
            let by = match kind {
                Counted::Policy => ALL_WHO_DECIDE[of_whom % ALL_WHO_DECIDE.len()].as_str(),
                Counted::Permits => "permits",
            };
            let mode = if of_whom < ALL_WHO_DECIDE.len() { "enforce" } else { "shadow" };
            let result = Answer::ALL[answer].as_str();
            series(REQUESTS, [policy, ("result", result), ("decided_by", by), ("mode", mode)])
        }
    }
}

/// Whether a count is exported even while it is 0, because alerts and dashboards divide by it.
pub(super) fn is_shown(counter: usize) -> bool {
    [Answer::Allowed, Answer::Rejected]
        .iter()
        .any(|answer| counter == place(false, *answer, DecidedBy::Store))
}

#[inline]
fn place(is_shadow: bool, answer: Answer, by: DecidedBy) -> usize {
    REQUEST + (usize::from(is_shadow) * ALL_WHO_DECIDE.len() + of_whom(by)) * ANSWERS + answer as usize
}

#[inline]
pub(super) fn of_whom(by: DecidedBy) -> usize {
    match by {
        DecidedBy::Store => 0,
        DecidedBy::Fallback => 1,
        DecidedBy::Lease => 2,
        DecidedBy::Cache => 3,
        // No store has counted, as in an outage.
        _ => 4,
    }
}

// A decision from the view of one of its policies: [`Answer`], with the words that metrics, pages and logs use.

/// The result of a request from the view of one of its policies.
///
/// A request is let in or refused once, by all its policies together. So the sum over policies is not the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// It was let in at once.
    Allowed,
    /// It waits for its turn.
    Delayed,
    /// It was refused, and could pass later.
    Rejected,
    /// Its cost is above what the policy ever lets pass at once.
    Impossible,
    /// Its key is suspended.
    Suspended,
    /// This policy had room for it, and another one of the request refused it; nothing was spent.
    OtherRefused,
    /// It was refused because the store gave no answer, as this policy says of an outage.
    Outage,
    /// There was no decision: a mistake in the program.
    Error,
}

sluicegate_core::listed!(Answer, "All answers, in their order.", "The word for this answer in labels of metrics, on pages and in logs.":
    Allowed => "allowed", Delayed => "delayed", Rejected => "rejected", Impossible => "impossible", Suspended => "suspended",
    OtherRefused => "other_refused", Outage => "outage", Error => "error");

impl Answer {
    /// Whether this policy stopped the request.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Rejected | Self::Impossible | Self::Suspended | Self::Outage)
    }
}

/// The part of a store's answer that concerns one of the asked policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) answer: Answer,
    pub(super) by: DecidedBy,
    /// Units that were spent.
    pub(super) spent: u64,
    /// Whether the request was allowed and left less than a fifth.
    is_near: bool,
}

impl Judgement {
    /// The part of a decision that is about the ask at this place, which was to spend.
    #[inline]
    pub(super) fn of(decision: &Decision, place: usize, mode: Mode) -> Self {
        // In one walk, because every decision comes by here.
        let (mut strictest, mut spent, mut is_near) = (Outcome::Allowed, 0, false);
        for own in decision.quotas().iter().filter(|status| status.policy_index() == place) {
            strictest = strictest.max(own.outcome());
            spent = spent.max(own.spent());
            is_near |= has_little(own);
        }
        let answer = match strictest {
            Outcome::Allowed if !decision.is_allowed() => Answer::OtherRefused,
            Outcome::Allowed if waits(mode, decision) => Answer::Delayed,
            Outcome::Allowed => Answer::Allowed,
            _ if decision.decided_by() == DecidedBy::Outage => Answer::Outage,
            Outcome::Impossible => Answer::Impossible,
            Outcome::Suspended => Answer::Suspended,
            _ => Answer::Rejected,
        };
        Self { answer, by: decision.decided_by(), spent, is_near: is_near && decision.is_allowed() }
    }

    /// A decision of the store over a single quota, which allows the request at once.
    #[inline]
    pub(super) fn allowed(status: &QuotaStatus) -> Self {
        let (spent, is_near) = (status.spent(), has_little(status));
        Self { answer: Answer::Allowed, by: DecidedBy::Store, spent, is_near }
    }

    /// Changes the answer to [`Answer::Suspended`], with nothing spent.
    pub(super) fn suspended(self) -> Self {
        Self { answer: Answer::Suspended, spent: 0, is_near: false, ..self }
    }

    /// A permit for a request in flight, or none.
    pub(super) fn permit(is_refused: bool) -> Self {
        let answer = if is_refused { Answer::Rejected } else { Answer::Allowed };
        Self { answer, by: DecidedBy::Store, spent: 0, is_near: false }
    }

    /// A request about which there is no decision.
    pub(super) fn error() -> Self {
        Self { answer: Answer::Error, by: DecidedBy::Outage, spent: 0, is_near: false }
    }
}

#[inline]
fn waits(mode: Mode, decision: &Decision) -> bool {
    matches!(mode, Mode::Reserve { .. }) && !decision.delay().is_zero()
}

#[inline]
fn has_little(status: &QuotaStatus) -> bool {
    status.remaining().saturating_mul(5) < status.capacity()
}
