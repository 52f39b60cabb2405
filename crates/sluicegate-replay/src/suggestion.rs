//! A suggested limit: [`Suggestion`].

use sluicegate_core::Policy;

use crate::frontier::Counted;
use crate::share::Share;

/// The lowest limit above which no limit rejects more than a share, with its policy alone.
///
/// # How to read it
/// This limit and every higher one would have rejected at most the share of the requests. That is a fact about the log,
/// not a forecast: refused clients come again, and traffic grows. Start with it in shadow mode.
///
/// If costs differ, a lower limit may also reject no more than the share: it refuses a large request, and so has room for several small
/// ones. It is not suggested, because a limit between the two rejects more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suggestion {
    /// The policy with that limit; periods stay, and so does the relation of bursts and of several quotas to the limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// The requested share.
    pub share: Share,
    /// Requests that it rejects; an estimate if the log was too large to be kept.
    pub rejected: u64,
    /// Keys with at least one rejected request.
    pub rejected_keys: u64,
    /// The largest distance from `rejected` to the true number in nineteen of twenty cases; 0 if it is exact.
    ///
    /// It is 1.96 standard deviations of the estimate, and at least three times what each key of a sample stands for.
    pub uncertainty: u64,
    /// The distance to the next lower limit that was tried: 1 up to a limit of 512, and less than a hundredth above that.
    ///
    /// Between the two limits where the share was crossed, every limit was tried.
    pub step: u64,
    /// Requests that it rejects together with the other suggestions.
    ///
    /// A rule that refuses a request keeps it from spending elsewhere, so this is often less than [`rejected`](Self::rejected). `None` if
    /// the log was too large to be kept as a whole.
    pub together: Option<u64>,
    /// The part of the log that is unusual or left out by hand, which it was not learned from; `None` if there is none.
    pub unusual: Option<UnusualSide>,
}

/// The requests that a suggestion was not learned from, because they are [unusual](crate::Unusual) or left out by hand.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnusualSide {
    /// All these requests.
    pub asked: Counted,
    /// Requests that the suggestion rejects.
    pub rejected: Counted,
    /// The least share of them that it has to reject, if requested.
    pub share: Option<Share>,
    /// The limit that is learned from the unusual requests too, but not from those that are left out by hand; `None` where it was not asked for.
    ///
    /// A limit that is learned from an attack admits the attack. It is shown for comparison, and because unusual traffic is not always an
    /// attack.
    pub with: Option<LimitWithUnusual>,
}

/// The limit that a log with an unusual part suggests, if that part is ordinary after all.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitWithUnusual {
    /// The policy with that limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// Requests that it rejects, ordinary and unusual ones.
    pub rejected: u64,
}
