//! What decides per request whether a limit applies, in which tier, and at what cost.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::StatusCode;
use http::request::Parts;

use crate::predicate::Predicate;
use crate::tiers::{Tier, Tiers};

/// The conditions of a limit.
#[derive(Default)]
pub(crate) struct Conditions {
    pub(crate) only_if: Vec<Predicate>,
    pub(crate) cost: Option<CostOf>,
    pub(crate) choose: Option<Choose>,
}

/// Finds the cost of a request.
pub(crate) type CostOf = Box<dyn Fn(&Parts) -> u64 + Send + Sync>;

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
    AtOnce(Box<dyn Fn(&Parts) -> Tier + Send + Sync>),
    Later(Box<dyn Fn(&Parts) -> Choice + Send + Sync>),
}

impl Conditions {
    pub(crate) fn asking(&self, cost: u64, parts: &Parts) -> Asking {
        if !self.only_if.iter().all(|applies| applies(parts)) {
            return Asking::Nothing;
        }
        let cost = self.cost.as_ref().map_or(cost, |cost_of| cost_of(parts));
        match &self.choose {
            _ if cost == 0 => Asking::Nothing,
            None => Asking::For { limiter: 0, cost },
            Some(Choose::AtOnce(choose)) => Asking::of(choose(parts), cost),
            Some(Choose::Later(choose)) => Asking::Choosing { choice: choose(parts), cost },
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
        F: for<'a> Fn(&'a Parts) -> Option<&'a str> + Send + Sync + 'static,
    {
        Self::AtOnce(Box::new(move |parts| tiers.find(choose(parts))))
    }

    pub(crate) fn later<F, T, N>(tiers: Tiers, choose: F) -> Self
    where
        F: Fn(&Parts) -> T + Send + Sync + 'static,
        T: Future<Output = Option<N>> + Send + 'static,
        N: AsRef<str>,
    {
        Self::Later(Box::new(move |parts| {
            let (tiers, name) = (tiers.clone(), choose(parts));
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
