//! Finds the limiter that a limit asks for a request: its only one, or that of a tier, under the quotas that the request brings.

use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};
use std::slice;
use std::sync::Arc;

use crate::key::RequestView;
use crate::limits::of_request::{OfRequest, PendingValue};
use crate::limits::quotas::{ChosenQuotas, Pick, Which, with_quotas};
use crate::limits::tiers::Tiers;

/// The limiters of a limit, one of which decides on a request.
pub(crate) struct LimiterSource {
    limiters: KnownLimiters,
    /// Finds the quotas of a request, if requests may bring their own.
    quotas: Option<OfRequest<ChosenQuotas>>,
}

/// The limiters, with the function that finds one of several.
enum KnownLimiters {
    One(RateLimiter),
    Tiers(Tiers, OfRequest<Pick>),
}

impl LimiterSource {
    pub(crate) fn one(limiter: RateLimiter) -> Self {
        Self { limiters: KnownLimiters::One(limiter), quotas: None }
    }

    pub(super) fn tiers(tiers: Tiers, choose: OfRequest<Pick>) -> Self {
        Self { limiters: KnownLimiters::Tiers(tiers, choose), quotas: None }
    }

    /// Whether the limiter is one of several.
    #[inline]
    pub(super) fn chooses(&self) -> bool {
        !matches!(self.limiters, KnownLimiters::One(_)) || self.quotas.is_some()
    }

    /// The limiter for a request, or the future that finds it.
    #[inline]
    pub(super) fn pick(&self, request: RequestView<'_>) -> Result<Pick, PendingValue<Pick>> {
        let picked = match &self.limiters {
            KnownLimiters::One(_) => Ok(Pick::Limiter(Which::Known(0))),
            KnownLimiters::Tiers(_, choose) => choose.value(request),
        };
        match &self.quotas {
            None => picked,
            Some(quotas) => match quotas.value(request) {
                Ok(ChosenQuotas::Default) => picked,
                chosen => self.pick_with_quotas(picked, chosen),
            },
        }
    }

    fn pick_with_quotas(
        &self,
        picked: Result<Pick, PendingValue<Pick>>,
        chosen: Result<ChosenQuotas, PendingValue<ChosenQuotas>>,
    ) -> Result<Pick, PendingValue<Pick>> {
        match (picked, chosen) {
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
    pub(super) fn set_quotas(&mut self, quotas: OfRequest<ChosenQuotas>) {
        self.quotas = Some(quotas);
    }

    /// Makes the store reserve room for the quotas that requests bring.
    pub(crate) fn take_quotas(&self) -> Result<(), ConfigError> {
        let limiters = if self.quotas.is_some() { self.known() } else { &[] };
        limiters.iter().try_for_each(|limiter| limiter.remember(Policy::taking_quotas))
    }

    /// The limiters, at least one, without the quotas that requests bring.
    #[inline]
    pub(crate) fn known(&self) -> &[RateLimiter] {
        match &self.limiters {
            KnownLimiters::One(limiter) => slice::from_ref(limiter),
            KnownLimiters::Tiers(tiers, _) => tiers.limiters(),
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
            (KnownLimiters::Tiers(tiers, _), Which::Known(place)) => tiers.name_of(*place),
            _ => None,
        }
    }

    /// Whether requests ask this policy.
    pub(crate) fn asks(&self, policy: &str) -> bool {
        self.known().iter().any(|limiter| limiter.with_policy(|known| known.name() == policy))
    }

    /// The store that decides.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.known()[0].store()
    }

    /// Makes refunds exact.
    pub(crate) fn keep_accounts(&self) -> Result<(), ConfigError> {
        self.known().iter().try_for_each(|limiter| limiter.remember(Policy::with_refunds))
    }
}

sluicegate_core::debug_as!(LimiterSource, source => source.known());
