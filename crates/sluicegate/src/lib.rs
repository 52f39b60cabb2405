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
pub use sluicegate_axum::{Attributed, BoxRespond, RateLimits, rate_limited};
#[cfg(feature = "axum")]
pub use sluicegate_axum::{Decided, KeyFromExtractor, NotLimited, RateLimitExt, key_from_extractor};
pub use sluicegate_core::algorithm;
pub use sluicegate_core::{Acquire, Busy, BusyKind, InFlight, InFlightBuilder, Permit};
pub use sluicegate_core::{
    Algorithm, Anchor, AsKey, Ask, Basis, BoxError, BreakerSettings, BreakerState, Change, Clock,
    ConfigError, ConfigErrorKind, Decision, Drain, Inherit, IntoQuota, Key, KeyRef, Limiters, MAX_BUCKETS,
    ManualClock, MemoryStats, MemoryStore, MemoryStoreBuilder, Mode, OnExceeded, OnFull, OnOutage, Opened,
    Outcome, Policy, PolicyBuilder, PolicyQuota, Quota, RateLimiter, Receipt, Refill, Registry, Resilient,
    ResilientBuilder, ResilientStatus, Standing, Store, StoreError, StoreErrorKind, SystemClock, Trace, Turn,
    Unsettled, Verdict,
};
#[cfg(feature = "redis-deadpool")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis-deadpool")))]
pub use sluicegate_redis::DeadPool;
#[cfg(feature = "redis")]
pub use sluicegate_redis::{RedisStore, RedisStoreBuilder};
#[cfg(feature = "axum")]
pub use sluicegate_tower::Route;
#[cfg(feature = "tower")]
pub use sluicegate_tower::{
    ApiKey, Bearer, ClientIp, Constant, Cookie, Extraction, ForwardedFaults, FromExtension, Header, Headers,
    KeyExtractor, KeyFn, LegacyReset, Limit, Meter, MissingKey, Networks, OnMalformed, OnMissingKey, Or,
    PeerAddr, PeerIp, ProblemJson, RateLimit, RateLimitLayer, RateLimitLayerBuilder, Reason, Refusal,
    RequestMethod, RequestPath, Respond, ResponseFuture, ShadowCount, SimpleJson, Tiers, TiersBuilder,
    key_fn, method_in, path_in, preflight,
};
#[cfg(feature = "jwt")]
pub use sluicegate_tower::{BearerJwt, Claims};

#[cfg(feature = "tower")]
pub use sluicegate_tower::{
    CallError, CallFuture, CallLimit, CallLimitLayer, CallMeter, Held, HeldPermit, InFlightFuture,
    InFlightLayer, InFlightProblem, LimitInFlight, WithCost,
};
#[cfg(feature = "grpc")]
pub use sluicegate_tower::{GrpcOr, GrpcStatus};
#[cfg(feature = "outgoing")]
pub use sluicegate_tower::{HttpWire, Outgoing, OutgoingFuture, OutgoingLayer, Wire, WireFn};
