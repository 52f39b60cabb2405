//! Finds the limiter that a limit asks for a request: its only one, that of a tier, or one that is chosen for the request.

use std::fmt;
use std::future::Future;
use std::slice;
use std::sync::Arc;

use sluicegate_core::{ConfigError, RateLimiter, Store};

use crate::key::RequestView;
use crate::limits::chosen::{Chosen, OpenPolicies};
use crate::limits::pick::{Pick, Picking, Which};
use crate::limits::quotas::{ByQuotas, with_quotas};
use crate::limits::tiers::Tiers;

/// The limiters of a limit, one of which decides on a request.
///
/// A choice that is known at once is a plain call; a choice that has to be looked up is a future,
/// which takes a place in the queue while it waits.
pub(crate) struct LimiterSource {
    limiters: KnownLimiters,
    /// Finds one of several limiters.
    choose: Option<LimiterChoice>,
    /// Finds the quotas of a request, if requests may bring their own.
    quotas: Option<ByQuotas>,
}

enum KnownLimiters {
    One(RateLimiter),
    Tiers(Tiers),
    Open(Arc<OpenPolicies>),
}

enum LimiterChoice {
    AtOnce(Box<dyn Fn(RequestView<'_>) -> Pick + Send + Sync>),
    Later(Box<dyn Fn(RequestView<'_>) -> Picking + Send + Sync>),
}

impl LimiterSource {
    pub(crate) fn one(limiter: RateLimiter) -> Self {
        Self { limiters: KnownLimiters::One(limiter), choose: None, quotas: None }
    }

    pub(super) fn tiers<F>(tiers: Tiers, choose: F) -> Self
    where
        F: for<'a> Fn(RequestView<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        let limiters = KnownLimiters::Tiers(tiers.clone());
        let choose = LimiterChoice::AtOnce(Box::new(move |request| tiers.find(choose(request))));
        Self { limiters, choose: Some(choose), quotas: None }
    }

    pub(super) fn tiers_later<F, T, N>(tiers: Tiers, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = Option<N>> + Send + 'static,
        N: AsRef<str>,
    {
        let limiters = KnownLimiters::Tiers(tiers.clone());
        let choose = LimiterChoice::Later(Box::new(move |request| {
            let (tiers, name) = (tiers.clone(), choose(request));
            Box::pin(async move { tiers.find(name.await.as_ref().map(AsRef::as_ref)) })
        }));
        Self { limiters, choose: Some(choose), quotas: None }
    }

    pub(crate) fn chosen<F, C>(store: Arc<dyn Store>, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> C + Send + Sync + 'static,
        C: Into<Chosen>,
    {
        let open = Arc::new(OpenPolicies::new(store));
        let limiters = KnownLimiters::Open(Arc::clone(&open));
        let choose = LimiterChoice::AtOnce(Box::new(move |request| open.pick(choose(request).into())));
        Self { limiters, choose: Some(choose), quotas: None }
    }

    pub(super) fn chosen_later<F, T, C>(store: Arc<dyn Store>, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = C> + Send + 'static,
        C: Into<Chosen>,
    {
        let open = Arc::new(OpenPolicies::new(store));
        let limiters = KnownLimiters::Open(Arc::clone(&open));
        let choose = LimiterChoice::Later(Box::new(move |request| {
            let (open, chosen) = (Arc::clone(&open), choose(request));
            Box::pin(async move { open.pick(chosen.await.into()) })
        }));
        Self { limiters, choose: Some(choose), quotas: None }
    }

    /// Whether the limiter is one of several.
    #[inline]
    pub(super) fn chooses(&self) -> bool {
        self.choose.is_some() || self.quotas.is_some()
    }

    /// The limiter for a request, or the future that finds it.
    #[inline]
    pub(super) fn pick(&self, request: RequestView<'_>) -> Result<Pick, Picking> {
        let picked = match &self.choose {
            None => Ok(Pick::Limiter(Which::Known(0))),
            Some(LimiterChoice::AtOnce(choose)) => Ok(choose(request)),
            Some(LimiterChoice::Later(choose)) => Err(choose(request)),
        };
        match &self.quotas {
            None => picked,
            Some(quotas) => self.pick_with_quotas(picked, quotas, request),
        }
    }

    fn pick_with_quotas(
        &self,
        picked: Result<Pick, Picking>,
        quotas: &ByQuotas,
        request: RequestView<'_>,
    ) -> Result<Pick, Picking> {
        match (picked, quotas.choose(request)) {
            (Ok(pick), Ok(chosen)) => Ok(with_quotas(pick, self.known(), chosen)),
            (picked, chosen) => {
                let known = self.known().to_vec();
                Err(Box::pin(async move {
                    let pick = match picked {
                        Ok(pick) => pick,
                        Err(picking) => picking.await,
                    };
                    let chosen = match chosen {
                        Ok(chosen) => chosen,
                        Err(choosing) => choosing.await,
                    };
                    with_quotas(pick, &known, chosen)
                }))
            }
        }
    }

    /// Lets requests bring quotas of their own.
    pub(super) fn set_quotas(&mut self, quotas: ByQuotas) {
        self.quotas = Some(quotas);
    }

    /// Makes the stores of the known limiters reserve room for the quotas that requests bring.
    pub(crate) fn take_quotas(&self) -> Result<(), ConfigError> {
        let known = if self.quotas.is_some() { self.known() } else { &[] };
        known.iter().try_for_each(RateLimiter::take_quotas)
    }

    /// The limiters that are known before any request; chosen limiters are not among them.
    #[inline]
    pub(crate) fn known(&self) -> &[RateLimiter] {
        match &self.limiters {
            KnownLimiters::One(limiter) => slice::from_ref(limiter),
            KnownLimiters::Tiers(tiers) => tiers.limiters(),
            KnownLimiters::Open(_) => &[],
        }
    }

    #[inline]
    pub(crate) fn limiter<'a>(&'a self, which: &'a Which) -> &'a RateLimiter {
        match which {
            Which::Known(place) => &self.known()[*place],
            Which::Chosen(limiter) => limiter,
        }
    }

    /// The name of the tier with this limiter.
    pub(crate) fn tier(&self, which: &Which) -> Option<&str> {
        match (&self.limiters, which) {
            (KnownLimiters::Tiers(tiers), Which::Known(place)) => tiers.name_of(*place),
            _ => None,
        }
    }

    /// Whether requests may ask this policy, as far as is known now.
    pub(crate) fn asks(&self, policy: &str) -> bool {
        let is_it = |limiter: &RateLimiter| limiter.with_policy(|known| known.name() == policy);
        self.known().iter().any(is_it) || self.open().is_some_and(|open| open.has(policy))
    }

    /// The store that decides, if there is a limiter at all.
    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        match &self.limiters {
            KnownLimiters::Open(open) => Some(open.store()),
            _ => self.known().first().map(RateLimiter::store),
        }
    }

    /// Makes refunds exact, also for limiters that are chosen later.
    pub(crate) fn keep_accounts(&self) -> Result<(), ConfigError> {
        match &self.limiters {
            KnownLimiters::Open(open) => open.keep_accounts(),
            _ => self.known().iter().try_for_each(RateLimiter::keep_accounts),
        }
    }

    /// The open policies, if policies are chosen per request.
    pub(super) fn open(&self) -> Option<&OpenPolicies> {
        match &self.limiters {
            KnownLimiters::Open(open) => Some(open),
            _ => None,
        }
    }
}

impl fmt::Debug for LimiterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limiters {
            KnownLimiters::Open(open) => open.fmt(f),
            _ => self.known().fmt(f),
        }
    }
}
