//! Starts the decision on a request: with the limits that a layer has at this moment, [`LimitsHandle`], or with those that the
//! request has kept.
//!
//! Fast path: one plain limit whose key is at hand and whose store is in memory, as for almost every request. It decides without
//! allocating. All other requests continue in `way`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::Extensions;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, Policy, RateLimiter};

use crate::admission::admitted::Marked;
use crate::admission::asks::RequestAsks;
use crate::admission::end::{RequestEnd, Timed};
use crate::admission::set::{BuiltLimits, Limits};
use crate::admission::way::{self, Waiting};
use crate::guard::Place;
use crate::key::RequestView;
use crate::limits::door::DoorVerdict;
use crate::limits::finding::{FoundLimit, LimitFinding, RequestAsk};
use crate::limits::pick::Which;
use crate::limits::walk::{Walk, WalkStep};
use crate::trace;

/// The limits of a layer, to inspect them and to swap them as a whole. Clones refer to the same layer.
///
/// A request keeps the limits that it began with to the end of its response: its turn, refunds and [`Meter`](crate::Meter)
/// belong to them. Requests that begin after a swap meet the new limits, all of them at once.
///
/// A policy in both the old and the new limits keeps its buckets, because the store owns them. If only quotas change,
/// [`replace`](sluicegate_core::RateLimiter::replace) the policy instead; a swap is for another set of limits,
/// another order, or other conditions, keys and settings. The number of waiting requests and the counts of shadow policies
/// carry over.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::RateLimitLayer;
/// use sluicegate_tower::limits::Limits;
///
/// let store = MemoryStore::new();
/// let api = Policy::gcra("api", "100/min").on(&store)?;
/// let layer = RateLimitLayer::new(api.clone());
///
/// // Later, while the service runs: a second limit beside the first.
/// let hourly = Policy::gcra("hourly", "1000/h").on(&store)?;
/// layer.limits_handle().swap(Limits::builder(api).and(hourly).build()?);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct LimitsHandle(Arc<Swapped>);

struct Swapped {
    limits: ArcSwap<Limits>,
    /// Whether any request has kept limits; until then requests are not searched for them.
    is_kept: AtomicBool,
}

/// The limits of one handle that a request keeps until it comes to them.
#[derive(Clone)]
pub(crate) struct Kept {
    of: LimitsHandle,
    limits: Limits,
}

impl LimitsHandle {
    /// A handle for layers that are made [from](crate::RateLimitLayer) it.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Swapped { limits: ArcSwap::from_pointee(limits), is_kept: AtomicBool::new(false) }))
    }

    /// Whether it is a clone of this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The limits that requests meet now.
    pub fn current(&self) -> Limits {
        Limits::clone(&self.0.limits.load())
    }

    /// Replaces the limits, and returns the old ones.
    ///
    /// New limits take over the queue's count and the counts of shadow policies.
    /// [`build`](crate::limits::LimitsBuilder::build) has checked the new limits already, so
    /// a swap cannot fail.
    pub fn swap(&self, limits: Limits) -> Limits {
        Limits::clone(&self.0.limits.rcu(|before| limits.instead_of(before)))
    }

    /// The result for a request that need not wait, or the wait.
    #[inline]
    pub(crate) fn begin(
        &self,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Result<RequestEnd, Box<Waiting>> {
        let current;
        let limits = match self.kept(request.extensions) {
            Some(kept) => kept,
            None => {
                // Borrowed for a moment, without a reference count.
                current = self.0.limits.load();
                &**current
            }
        };
        limits.begin(request, place)
    }

    /// The limits as they are now, for requests that come to them later.
    pub(crate) fn keep(&self) -> Kept {
        // Relaxed: a thread that sees the kept limits received them after this store.
        self.0.is_kept.store(true, Ordering::Relaxed);
        Kept { of: self.clone(), limits: self.current() }
    }

    /// The limits of this handle that a request has kept, if any.
    #[inline]
    fn kept<'a>(&self, extensions: &'a Extensions) -> Option<&'a Limits> {
        if !self.0.is_kept.load(Ordering::Relaxed) {
            return None;
        }
        let kept = extensions.get::<Kept>()?;
        self.is_same(&kept.of).then_some(&kept.limits)
    }
}

impl Limits {
    /// Decides by these limits: the result if the request need not wait, or the wait.
    #[inline]
    pub(super) fn begin(
        &self,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Result<RequestEnd, Box<Waiting>> {
        let timed = self.0.made.settings.routes.then(Timed::new);
        let mut begun = self.begin_untold(request, place);
        match &mut begun {
            Ok(end) => self.report(request, end, timed.as_ref()),
            Err(waiting) => waiting.begin(request, timed),
        }
        begun
    }

    #[inline]
    fn begin_untold(&self, request: RequestView<'_>, place: &mut Place) -> Result<RequestEnd, Box<Waiting>> {
        let BuiltLimits { plan, settings, known, .. } = &*self.0.made;
        if let Some(door) = &settings.door {
            match door.entry(request) {
                DoorVerdict::ToTheLimits => {}
                entry => return way::through((self, request), entry, place),
            }
        }
        let Some(plain) = &plan.plain else { return self.begin_with_several(request, place) };
        if plain.limiter.with_policy(Policy::mode) != PolicyMode::Enforce {
            return self.begin_with_several(request, place);
        }
        let limit = &plan.limits[0];
        match limit.key.extract(request).now() {
            Ok(Ok(mut key)) => {
                key.set_kind(limit.kind);
                if let Some(given) = plain.limiter.given(key.as_ref()) {
                    return self.begin_given(
                        RequestAsk { limit: 0, which: Which::Chosen(given), key, cost: plain.cost },
                        place,
                    );
                }
                let asked = RequestAsk { limit: 0, which: Which::Known(0), key, cost: plain.cost };
                let asking = self.ask(&plain.limiter, &asked);
                self.answered(asked, asking, place, |asks| match known.only.get() {
                    Some(only) if only.replacements == plain.limiter.replacements() => {
                        Arc::clone(&only.policies)
                    }
                    _ => asks.policies(&self.0.made),
                })
            }
            key => {
                let (walk, next) = Walk::behind_plain(plan, plain.cost, key);
                way::along((self, request), None, (walk, next), place)
            }
        }
    }

    /// Decides about a key to which an operator has given quotas.
    #[cold]
    fn begin_given(&self, asked: RequestAsk, place: &mut Place) -> Result<RequestEnd, Box<Waiting>> {
        let asking = self.ask(asked.limiter(self.plan()), &asked);
        self.answered(asked, asking, place, |asks| asks.policies(&self.0.made))
    }

    /// Goes through all limits. A request for which a single limit asks, with its key at hand, is decided as by one limit.
    #[inline(never)]
    fn begin_with_several(
        &self,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Result<RequestEnd, Box<Waiting>> {
        let plan = self.plan();
        let (mut walk, mut only) = (Walk::default(), None);
        loop {
            match (walk.next(plan, request), only) {
                (
                    WalkStep::Found(FoundLimit {
                        limit,
                        finding: LimitFinding::Asks { which, key, cost, is_enforced: true },
                    }),
                    None,
                ) => only = Some(RequestAsk { limit, which, key, cost }),
                (WalkStep::Found(FoundLimit { finding: LimitFinding::Nothing(_), .. }), asked) => {
                    only = asked
                }
                (WalkStep::End, Some(asked)) => {
                    let asking = self.ask(asked.limiter(plan), &asked);
                    return self.answered(asked, asking, place, |asks| asks.policies(&self.0.made));
                }
                (next, asked) => return way::along((self, request), asked, (walk, next), place),
            }
        }
    }

    /// Asks one limiter; `None` if the request goes on and its numbers are not shown.
    #[inline]
    fn ask(&self, limiter: &RateLimiter, asked: &RequestAsk) -> Option<DecisionFuture> {
        let marks = self.0.made.marks;
        let deciding = limiter.check(&asked.key).cost(asked.cost).start();
        let is_enough = matches!(deciding.known(), Some(Ok(decision)) if !marks && goes_on(decision));
        (!is_enough || trace::is_wanted()).then_some(deciding)
    }

    /// Goes on with the answer of the only limiter that is asked.
    #[inline]
    fn answered(
        &self,
        asked: RequestAsk,
        asking: Option<DecisionFuture>,
        place: &mut Place,
        policies: impl FnOnce(&RequestAsks) -> Arc<[Arc<Policy>]>,
    ) -> Result<RequestEnd, Box<Waiting>> {
        let Some(deciding) = asking else { return Ok(Ok(None)) };
        let mut asks = RequestAsks::default();
        asks.push(asked);
        match deciding.now() {
            Ok(Ok(decision)) if self.0.made.marks && goes_on(&decision) && decision.is_counted() => {
                Ok(Ok(Some(Marked::new(&self.0.made, asks, Some(decision), policies, Vec::new()))))
            }
            answer => way::behind(self, asks, answer, place),
        }
    }
}

#[inline]
fn goes_on(decision: &Decision) -> bool {
    decision.is_allowed() && decision.delay().is_zero()
}

impl fmt::Debug for LimitsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitsHandle").field(&self.current()).finish()
    }
}
