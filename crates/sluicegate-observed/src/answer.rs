//! A decision from the view of one of its policies: [`Answer`], with the words that metrics, pages and logs use.

use sluicegate_core::store::{DecidedBy, Mode, QuotaStatus};
use sluicegate_core::{Decision, Outcome};

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

impl Answer {
    /// All answers, in their order.
    pub const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Delayed,
        Self::Rejected,
        Self::Impossible,
        Self::Suspended,
        Self::OtherRefused,
        Self::Outage,
        Self::Error,
    ];

    /// The word for this answer in labels of metrics, on pages and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Delayed => "delayed",
            Self::Rejected => "rejected",
            Self::Impossible => "impossible",
            Self::Suspended => "suspended",
            Self::OtherRefused => "other_refused",
            Self::Outage => "outage",
            Self::Error => "error",
        }
    }

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
    pub(super) is_near: bool,
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
