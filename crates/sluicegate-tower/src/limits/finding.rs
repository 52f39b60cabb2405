//! The ask of one limit for a request, or why it has none.

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, RateLimiter};

use crate::key::MissingKey;
use crate::key::missing::Keyed;
use crate::limits::limit::Limit;
use crate::limits::pick::Which;
use crate::limits::plan::Plan;
use crate::respond::stop::Stop;

/// Whose bucket of which limiter of a limit, and for how much.
///
/// It names the limiter by its place in the plan, so that nothing is cloned for a request that is
/// decided at once.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The place of the limit.
    pub(crate) limit: usize,
    pub(crate) which: Which,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// The ask of the limit in this place for a request.
pub(crate) struct Found {
    pub(crate) limit: usize,
    pub(crate) finding: Finding,
}

pub(crate) enum Finding {
    /// So much, of this limiter and key; and whether the answer is enforced, or only tried out.
    Asks { which: Which, key: Key, cost: u64, is_enforced: bool },
    /// Nothing, and why.
    Nothing(WhyNot),
    /// The request is refused.
    Refuses(Box<Stop>),
}

/// Why a limit asks nothing.
#[derive(Debug)]
pub(crate) enum WhyNot {
    /// One of its conditions does not hold.
    Condition,
    /// The request costs 0.
    Free,
    /// Its tier, or what was chosen for it, is unlimited.
    Unlimited,
    /// Its policy is off.
    Off,
    /// Its key is missing, and such requests are let through.
    NoKey(MissingKey),
    /// It cannot be asked, and refuses no request for that, because it is only tried out.
    TriedOut(Box<Stop>),
}

impl Asked {
    #[inline]
    pub(crate) fn limiter<'a>(&'a self, plan: &'a Plan) -> &'a RateLimiter {
        plan.limits[self.limit].source.limiter(&self.which)
    }
}

impl Finding {
    /// The ask of the limit, now that its key was looked for.
    #[inline]
    pub(super) fn with_key(
        (limit, mode): (&Limit, PolicyMode),
        which: Which,
        cost: u64,
        key: Result<Key, MissingKey>,
    ) -> Self {
        let key = match key {
            Ok(mut key) => {
                key.set_kind(limit.kind);
                key
            }
            Err(missing) => match limit.when_missing.treat(missing, || limit.title()) {
                Keyed::Key(shared) => shared,
                Keyed::Skipped(missing) => return Self::Nothing(WhyNot::NoKey(missing)),
                Keyed::Rejected(missing, status) => {
                    return Self::refusing(mode, Stop::MissingKey(missing, status));
                }
            },
        };
        Self::Asks { which, key, cost, is_enforced: mode == PolicyMode::Enforce }
    }

    /// Only a limit that is enforced refuses a request.
    pub(super) fn refusing(mode: PolicyMode, why: Stop) -> Self {
        match mode {
            PolicyMode::Enforce => Self::Refuses(Box::new(why)),
            PolicyMode::Off => Self::Nothing(WhyNot::Off),
            _ => Self::Nothing(WhyNot::TriedOut(Box::new(why))),
        }
    }
}
