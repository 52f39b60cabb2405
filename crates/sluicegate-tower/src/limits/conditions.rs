//! What decides per request whether a limit applies, in which tier, and at what cost.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::StatusCode;

use crate::key::RequestView;
use crate::limits::limit::{Limit, Limiters};
use crate::limits::predicate::Predicate;
use crate::limits::tiers::{Tier, Tiers};

/// The conditions of a limit.
#[derive(Default)]
pub(crate) struct Conditions {
    pub(crate) only_if: Vec<Predicate>,
    pub(crate) cost: Option<CostOf>,
    pub(crate) choose: Option<Choose>,
}

/// Finds the cost of a request.
pub(crate) type CostOf = Box<dyn Fn(RequestView<'_>) -> u64 + Send + Sync>;

/// What a limit asks for a request.
pub(crate) enum Asking {
    /// So much, of this one of its limiters.
    For { limiter: usize, cost: u64 },
    /// Nothing: it does not apply.
    Nothing,
    /// Nothing, for the request's tier is not known and such requests are refused.
    Refusal(StatusCode),
    /// So much, of the limiter that is to be chosen.
    Choosing { choice: Choice, cost: u64 },
}

/// A tier that is being looked up.
pub(crate) struct Choice(Pin<Box<dyn Future<Output = Tier> + Send>>);

/// Finds the tier of a request.
pub(crate) enum Choose {
    AtOnce(Box<dyn Fn(RequestView<'_>) -> Tier + Send + Sync>),
    Later(Box<dyn Fn(RequestView<'_>) -> Choice + Send + Sync>),
}

impl Limit {
    /// One of several limiters, chosen per request by the name of its tier; see [`Tiers`].
    ///
    /// A request that `choose` names no tier for, or one that is not among the tiers, gets what the tiers say of such
    /// requests.
    ///
    /// `choose` is a function, or a closure that is written in its place here: only there the compiler sees that the name
    /// may be borrowed from the request.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::limits::Tiers;
    ///
    /// /// What authentication found out.
    /// #[derive(Clone)]
    /// struct Plan(String);
    ///
    /// let plans = Tiers::builder(&MemoryStore::new())
    ///     .tier(Policy::gcra("free", "100/min"))
    ///     .tier(Policy::gcra("pro", "1000/min"))
    ///     .unlimited("enterprise")
    ///     .default_tier("free")
    ///     .build()?;
    /// let limit = Limit::tiered(plans, |request| request.extensions.get::<Plan>().map(|plan| &*plan.0));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn tiered<F>(tiers: Tiers, choose: F) -> Self
    where
        F: for<'a> Fn(RequestView<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        let mut limit = Self::of(Limiters::Tiers(tiers.clone()));
        limit.conditions().choose = Some(Choose::at_once(tiers, choose));
        limit
    }

    /// As [`tiered`](Self::tiered), where the tier has to be looked up: `choose` takes what it needs from the request
    /// and returns a future. The request waits for it, for as long as
    /// [`longest_lookup`](crate::rate_limit::RateLimitLayerBuilder::longest_lookup) says.
    pub fn tiered_async<F, T, N>(tiers: Tiers, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = Option<N>> + Send + 'static,
        N: AsRef<str>,
    {
        let mut limit = Self::of(Limiters::Tiers(tiers.clone()));
        limit.conditions().choose = Some(Choose::later(tiers, choose));
        limit
    }

    /// Units that a request spends, found out from the request. A cost of 0 means that this limit does not apply to
    /// it. A cost above what a quota ever lets pass at once is refused with 403, for no wait helps.
    ///
    /// What a client writes chooses the cost here, so a closure that reads a header should have a bound of its own.
    ///
    /// ```
    /// use http::Method;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    ///
    /// let api = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
    /// let limit = Limit::new(api).cost_fn(|request| match (request.method, request.uri.path()) {
    ///     (&Method::OPTIONS, _) => 0,
    ///     (_, "/report") => 10,
    ///     _ => 1,
    /// });
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn cost_fn(mut self, cost: impl Fn(RequestView<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.conditions().cost = Some(Box::new(cost));
        self
    }

    /// Applies this limit only to requests of which `applies` is true. With several such conditions, all must hold.
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.conditions().only_if.push(Box::new(applies));
        self
    }
}

impl Conditions {
    pub(crate) fn asking(&self, cost: u64, request: RequestView<'_>) -> Asking {
        if !self.only_if.iter().all(|applies| applies(request)) {
            return Asking::Nothing;
        }
        let cost = self.cost.as_ref().map_or(cost, |cost_of| cost_of(request));
        match &self.choose {
            _ if cost == 0 => Asking::Nothing,
            None => Asking::For { limiter: 0, cost },
            Some(Choose::AtOnce(choose)) => Asking::of(choose(request), cost),
            Some(Choose::Later(choose)) => Asking::Choosing { choice: choose(request), cost },
        }
    }
}

impl Asking {
    /// What is asked of a tier.
    pub(crate) fn of(tier: Tier, cost: u64) -> Self {
        match tier {
            Tier::Limited(limiter) => Self::For { limiter, cost },
            Tier::Unlimited => Self::Nothing,
            Tier::Unknown(status) => Self::Refusal(status),
        }
    }
}

impl Choose {
    pub(crate) fn at_once<F>(tiers: Tiers, choose: F) -> Self
    where
        F: for<'a> Fn(RequestView<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        Self::AtOnce(Box::new(move |request| tiers.find(choose(request))))
    }

    pub(crate) fn later<F, T, N>(tiers: Tiers, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = Option<N>> + Send + 'static,
        N: AsRef<str>,
    {
        Self::Later(Box::new(move |request| {
            let (tiers, name) = (tiers.clone(), choose(request));
            Choice(Box::pin(async move { tiers.find(name.await.as_ref().map(AsRef::as_ref)) }))
        }))
    }
}

impl Future for Choice {
    type Output = Tier;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Tier> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choice(..)")
    }
}
