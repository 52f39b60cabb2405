#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Pages to read: no code.
#[cfg(any(doc, doctest))]
pub mod docs {
    #[doc = include_str!("../docs/migration.md")]
    pub mod migration {}

    #[doc = include_str!("../docs/outages.md")]
    pub mod outages {}

    #[doc = include_str!("../docs/threats.md")]
    pub mod threats {}
}

#[cfg(feature = "macros")]
#[doc(hidden)]
pub use sluicegate_axum::__private;
#[cfg(feature = "macros")]
pub use sluicegate_axum::rate_limited;
#[cfg(feature = "axum")]
pub use sluicegate_axum::{Decided, RateLimitExt};
pub use sluicegate_core::{
    Algorithm, ConfigError, Decision, Key, MemoryStore, OnExceeded, OnOutage, Outcome, Policy, Quota,
    RateLimiter, Resilient, Store, StoreError,
};
pub use sluicegate_core::{clock, error, memory, policy, resilient};
#[cfg(feature = "redis")]
pub use sluicegate_redis::RedisStore;
#[cfg(feature = "outgoing")]
#[cfg_attr(docsrs, doc(cfg(feature = "outgoing")))]
pub use sluicegate_tower::outgoing;
#[cfg(feature = "tower")]
pub use sluicegate_tower::{ClientIp, KeyExtractor, Limit, Meter, PeerIp, RateLimitLayer};
#[cfg(feature = "tower")]
pub use sluicegate_tower::{call, limits, rate_limit};

pub use sluicegate_core::algorithm;

/// What `#[rate_limited]` needs besides itself: the store that it finds its limits on.
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub mod attribute {
    pub use sluicegate_axum::{Attributed, BoxRespond, RateLimitStore};
}

/// How many requests of a key are under way at once.
pub mod in_flight {
    pub use sluicegate_core::in_flight::{
        Acquire, InFlight, InFlightBuilder, NoPermit, NoPermitKind, Permit,
    };
    #[cfg(feature = "tower")]
    pub use sluicegate_tower::in_flight::{
        HeldPermit, InFlightFuture, InFlightLayer, InFlightProblem, LimitInFlight, PermitBody,
    };
}

/// Whose bucket it is: keys, and the extractors that find them in requests.
pub mod key {
    #[cfg(feature = "axum")]
    pub use sluicegate_axum::{KeyFromExtractor, key_from_extractor};
    pub use sluicegate_core::key::{AsKey, Key, KeyRef};
    #[cfg(feature = "axum")]
    pub use sluicegate_tower::key::Route;
    #[cfg(feature = "tower")]
    pub use sluicegate_tower::key::{
        ApiKey, Bearer, ClientIp, Constant, Cookie, Extraction, ForwardedFaults, FromExtension, HeaderKey,
        KeyExtractor, KeyFn, MissingKey, Networks, OnMalformed, OnMissingKey, Or, PeerAddr, PeerIp,
        RequestMethod, RequestPath, RequestView, key_fn,
    };
    #[cfg(feature = "jwt")]
    pub use sluicegate_tower::key::{BearerJwt, Claims};
}

/// The handle of a policy on a store, and what it gives out.
pub mod limiter {
    pub use sluicegate_core::limiter::{Change, Inherit, RateLimiter, Receipt, Turn};
}

/// Stores that this crate does not know of are made of these.
pub mod store {
    pub use sluicegate_core::limiter::Inherit;
    pub use sluicegate_core::store::{
        Ask, DecidedBy, DecisionFuture, Limiters, Mode, PreparedPolicy, QuotaStatus, Registry, Store, Trace,
    };
}

/// The Redis store's settings.
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis {
    #[cfg(feature = "redis-deadpool")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-deadpool")))]
    pub use sluicegate_redis::DeadPool;
    pub use sluicegate_redis::{RedisStore, RedisStoreBuilder};
}

/// What a client is told: the header fields of every response, and the response to a request that is refused.
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod respond {
    #[cfg(feature = "axum")]
    pub use sluicegate_axum::NotLimited;
    #[cfg(feature = "grpc")]
    pub use sluicegate_tower::respond::{GrpcOr, GrpcStatus};
    pub use sluicegate_tower::respond::{
        HeaderFields, LegacyReset, ProblemJson, Refusal, RefusalReason, Respond, SimpleJson,
    };
}
