#![doc = include_str!("../../../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Pages to read: no code.
#[cfg(any(doc, doctest))]
pub mod docs {
    #[doc = include_str!("../docs/migration.md")]
    pub mod migration {}

    #[doc = include_str!("../docs/outages.md")]
    pub mod outages {}
}

#[cfg(feature = "macros")]
#[doc(hidden)]
pub use sluicegate_axum::__private;
#[cfg(feature = "macros")]
pub use sluicegate_axum::{BoxRespond, RateLimits, rate_limited};
#[cfg(feature = "axum")]
pub use sluicegate_axum::{Decided, NotLimited, RateLimitExt};
pub use sluicegate_core::algorithm;
pub use sluicegate_core::{
    Algorithm, Anchor, AsKey, Ask, Basis, BoxError, BreakerSettings, BreakerState, Clock, ConfigError,
    ConfigErrorKind, Decision, Drain, Inherit, IntoQuota, Key, KeyRef, MAX_BUCKETS, ManualClock, MemoryStats,
    MemoryStore, MemoryStoreBuilder, Mode, OnExceeded, OnOutage, Opened, Outcome, Policy, PolicyBuilder,
    PolicyQuota, Quota, RateLimiter, Refill, Resilient, ResilientBuilder, ResilientStatus, Standing, Store,
    StoreError, StoreErrorKind, SystemClock, Turn, Verdict,
};
#[cfg(feature = "redis")]
pub use sluicegate_redis::{RedisStore, RedisStoreBuilder};
#[cfg(feature = "tower")]
pub use sluicegate_tower::{
    Constant, Extraction, FromExtension, Header, Headers, KeyExtractor, KeyFn, LegacyReset, Limit, Meter,
    MissingKey, OnMissingKey, Or, PeerAddr, PeerIp, ProblemJson, RateLimit, RateLimitLayer,
    RateLimitLayerBuilder, Reason, Refusal, Respond, ResponseFuture, ShadowCount, SimpleJson, Tiers,
    TiersBuilder, key_fn, method_in, path_in, preflight,
};
