//! Quotas that requests bring for their keys ([`ChosenQuotas`]), and the limiter found for a request ([`Pick`]).

use http::StatusCode;
use sluicegate_core::policy::Quotas;
use sluicegate_core::{ConfigError, Quota, RateLimiter};

/// The choice of [`Limit::quota_by`](crate::Limit::quota_by) for a request.
///
/// [`Quotas`], a [`Quota`], an `Option` and a `Result` of these convert into it: `None` is the quota of the policy, and a request whose
/// quota is invalid is refused with 500, and the error is logged.
///
/// ```
/// use sluicegate_core::Quota;
/// use sluicegate_tower::limits::ChosenQuotas;
///
/// let chosen: ChosenQuotas = Some(Quota::per_minute(500)).into();
/// assert!(matches!(chosen, ChosenQuotas::Quotas(_)));
/// let chosen: ChosenQuotas = "500/fortnight".parse::<Quota>().into();
/// assert!(matches!(chosen, ChosenQuotas::Mistake(_)));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ChosenQuotas {
    /// The quotas of the policy.
    Default,
    /// Quotas in place of the policy's.
    Quotas(Quotas),
    /// The limit does not apply to this request.
    Unlimited,
    /// The request is refused with this status.
    Refuse(StatusCode),
    /// The quotas are invalid: the request is refused with 500.
    Mistake(ConfigError),
}

impl From<Quotas> for ChosenQuotas {
    fn from(quotas: Quotas) -> Self {
        Self::Quotas(quotas)
    }
}

impl From<Quota> for ChosenQuotas {
    fn from(quota: Quota) -> Self {
        Self::Quotas(quota.into())
    }
}

impl<C: Into<Self>> From<Option<C>> for ChosenQuotas {
    fn from(chosen: Option<C>) -> Self {
        chosen.map_or(Self::Default, Into::into)
    }
}

impl<C: Into<Self>> From<Result<C, ConfigError>> for ChosenQuotas {
    fn from(chosen: Result<C, ConfigError>) -> Self {
        chosen.map_or_else(Self::Mistake, Into::into)
    }
}

/// The limiter that a limit asks.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The known limiter at this index.
    Known(usize),
    /// A limiter with quotas of the request's key.
    Chosen(RateLimiter),
}

/// The limiter found for a request.
pub(crate) enum Pick {
    Limiter(Which),
    Unlimited,
    /// Requests without a tier are refused with this status.
    Refused(StatusCode),
    /// The quotas of the request cannot be kept.
    Mistake(ConfigError),
}

/// The picked limiter with these quotas for the key.
pub(super) fn with_quotas(pick: Pick, known: &[RateLimiter], chosen: ChosenQuotas) -> Pick {
    let Pick::Limiter(which) = pick else { return pick };
    let quotas = match chosen {
        ChosenQuotas::Default => return Pick::Limiter(which),
        ChosenQuotas::Quotas(quotas) => quotas,
        ChosenQuotas::Unlimited => return Pick::Unlimited,
        ChosenQuotas::Refuse(status) => return Pick::Refused(status),
        ChosenQuotas::Mistake(error) => return Pick::Mistake(error),
    };
    let limiter = match &which {
        Which::Known(place) => &known[*place],
        Which::Chosen(limiter) => limiter,
    };
    let own = limiter.with_quotas(quotas);
    own.map_or_else(Pick::Mistake, |own| Pick::Limiter(Which::Chosen(own)))
}
