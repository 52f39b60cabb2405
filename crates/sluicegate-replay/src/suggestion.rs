//! The limit to set: [`Suggestion`].

use sluicegate_core::Policy;

use crate::frontier::Counted;
use crate::share::Share;

/// The least limit above which no limit rejects more than a share, its policy alone.
///
/// # How to read it
/// Every limit from this one on would have rejected at most the share of the requests that were asked. That is a fact about the log,
/// and no forecast: clients that are refused come again, and traffic grows. It is a place to begin in shadow mode.
///
/// Where costs differ, a lower limit may also reject no more than the share: it refuses a large request, and so has room for several small
/// ones. It is not suggested, because a limit between the two rejects more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suggestion {
    /// The policy with that limit; periods stay, and so does the relation of bursts and of several quotas to the limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// The share that was asked for.
    pub share: Share,
    /// Requests that it rejects; estimated where the log was too large to be kept.
    pub rejected: u64,
    /// Keys of which it rejects at least one request.
    pub rejected_keys: u64,
    /// The distance from `rejected` to the true number in nineteen cases of twenty, at most; 0 if it is exact.
    ///
    /// It is 1.96 standard deviations of the estimate, and at least three times what each key of a sample stands for.
    pub uncertainty: u64,
    /// The distance to the next lower limit that was tried: 1 up to a limit of 512, and less than a hundredth above that.
    ///
    /// Between the two limits where the share was crossed, every limit was tried.
    pub step: u64,
    /// Requests that it rejects beside the other suggestions, if they were replayed together.
    ///
    /// A rule that refuses a request keeps it from spending elsewhere, so this is often less than [`rejected`](Self::rejected). `None` where
    /// the log was too large to be kept as a whole.
    pub together: Option<u64>,
    /// The part of the log that is unusual or left out by hand, which it was not learned from; `None` if there is none.
    pub unusual: Option<UnusualSide>,
}

/// The requests that a suggestion was not learned from, because they are [unusual](crate::Unusual) or left out by hand.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnusualSide {
    /// All of them.
    pub asked: Counted,
    /// Requests that the suggestion rejects.
    pub rejected: Counted,
    /// The share of them that it has to reject at least, if one was asked for.
    pub share: Option<Share>,
    /// The limit that is learned from the unusual requests too, but not from those that are left out by hand; `None` where it was not asked for.
    ///
    /// A limit that is learned from an attack admits the attack. It is here so that both can be compared, and because not everything that
    /// is unusual is an attack.
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
