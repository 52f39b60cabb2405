//! [algorithms]: docs::algorithms
//! [comparison]: docs::comparison
//! [cookbook]: docs::cookbook
//! [examples]: https://github.com/sluicegate/sluicegate/tree/main/examples
//! [features]: #features
//! [fleet]: docs::fleet
//! [gateway]: docs::gateway
//! [getting_started]: docs::getting_started
//! [keys]: docs::keys
//! [migration]: docs::migration
//! [operating]: docs::operating
//! [outages]: docs::outages
//! [promises]: docs::promises
//! [redis]: docs::redis
//! [serve]: docs::serve
//! [speed]: docs::speed
//! [testing]: docs::testing
//! [threats]: docs::threats
//! [tiers]: docs::tiers
//! [waiting]: docs::waiting
//!
#![doc = include_str!("../README.md")]
//! # Modules
//!
//! The root has the names that applications need first. The rest is in modules, by topic:
//!
//! | module | for |
//! |---|---|
//! | [`policy`] | how much per period, and what happens to requests beyond it: waiting, shadow, outages, several quotas |
//! | [`algorithm`] | the settings of the algorithms; the rules themselves, for authors of stores |
//! | [`limiter`] | the handle of a policy on a store: turns, receipts, replacing a policy at run time, overrides by operators |
//! | [`key`] | whose bucket: addresses, headers, secrets, tokens, routes, axum's extractors, your own |
//! | [`limits`] | which requests a limit applies to, at what cost, in which plan; deciding and explaining without a layer |
//! | [`rate_limit`] | the layer, its settings, and the meter for costs that are known only afterwards |
//! | [`request_fields`] | fields of a request's JSON or form, such as its model or user, for keys, conditions and reservations |
//! | [`bandwidth`] | bytes a second of downloads and uploads |
//! | [`settle`] | costs that a response states: tokens of a language model, bytes of a download |
//! | [`respond`] | header fields and bodies of responses, gRPC |
//! | [`attribute`] | the store of `#[rate_limited]` handlers |
//! | [`in_flight`] | how many requests of a key are under way at once |
//! | [`guard`] | the service, the future and the gate of all layers, to name their types |
//! | [`call`] | limits for services that are not HTTP |
//! | [`outgoing`] | calls to other servers, at the pace that both sides allow |
//! | [`overflow`] | a waiting room: a fair place in line instead of a refusal; work for later |
//! | [`memory`] | the store in this process: size, clock, numbers |
//! | [`redis`] | the store that all instances share |
//! | [`resilient`] | a breaker and a local fallback around a store |
//! | [`fleet`] | wrappers of the shared store: refusals and leases that are decided locally |
//! | [`rules`] | limits in a file, changed without a deploy |
//! | [`observed`] | counts of all decisions: which keys are limited, by which policy, and the state of the store |
//! | [`status`] | the page for the person on call |
//! | [`store`] | for authors of stores and of store wrappers |
//! | [`clock`] | time as a parameter: tests advance it by hand |
//! | [`error`] | what can be wrong with a configuration, and why a store gave no answer |
//! | [`docs`] | pages to read: getting started, algorithms, keys, Redis, operating, a cookbook and more |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `axum`, on by default | `.rate_limit(..)` on routes and routers, [`Decided`] for handlers; `tower` with it |
//! | `macros`, on by default | [`rate_limited`] on handlers, checked by the compiler; `axum` with it |
//! | `calendar` | quotas by periods of the [`calendar`]: months, quarters and years; days and weeks in a time zone |
//! | `tower` | [`RateLimitLayer`] and key extractors for any `http` service |
//! | `secrets` | [`ApiKey`](key::ApiKey), [`Bearer`](key::Bearer) and [`Cookie`](key::Cookie): keys from secrets, of which only a digest is kept |
//! | `jwt` | [`BearerJwt`](key::BearerJwt): verified JSON Web Tokens; the application chooses the crypto backend of jsonwebtoken |
//! | `grpc` | [`GrpcOr`](respond::GrpcOr): refusals that gRPC clients understand |
//! | `in-flight` | [`InFlight`](in_flight::InFlight): a limit on how many requests are under way at once; with `tower` its layers |
//! | `outgoing` | [`OutgoingLayer`](outgoing::OutgoingLayer): calls to other servers |
//! | `reqwest` | the same for `reqwest`, whose `client.get(url)` stays as it is, and [`RetryAfter`](outgoing::RetryAfter) |
//! | `overflow` | [`WaitingRoom`](overflow::WaitingRoom): a fair place in line instead of a refusal |
//! | `deferred` | [`Deferral`](overflow::deferred::Deferral): requests that exceed a limit are kept, answered with 202, and run later; `overflow` with it |
//! | `deferred-redis` | [`RedisJobs`](overflow::deferred::RedisJobs): such jobs on a Redis that instances share |
//! | `metrics` | [`Observed`](observed::Observed): a store wrapper that counts every decision; `resilient` with it |
//! | `resilient` | [`Resilient`]: a breaker and a local fallback around a store that may be unreachable |
//! | `redis` | [`RedisStore`]: limits that all instances of a service share; `resilient` with it |
//! | `fleet` | [`DenyCache`](fleet::DenyCache), [`Leased`](fleet::Leased), [`Sharded`](fleet::Sharded), [`Regional`](fleet::Regional): shared limits, mostly decided without a call; `resilient` with it |
//! | `rules` | [`Rules`](rules::Rules): limits in a file, changed without a deploy; `calendar` and `jwt` with it |
//! | `redis-tls` | `rediss://` URLs; the application installs a rustls crypto provider |
//! | `redis-deadpool` | Redis stores on a pool of deadpool-redis that the application has already |
//! | `status` | [`StatusPage`](status::StatusPage): the page for the person on call |
//! | `full` | all but `deferred`, `deferred-redis`, `redis-tls` and `redis-deadpool` |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc(test(attr(deny(unused_must_use))))]

/// Pages to read: no code.
#[cfg(any(doc, doctest))]
pub mod docs {
    /// Makes a page for each name. Its links to other pages are names of files, and its links to items are addresses on docs.rs, since
    /// other places show the page, too. Here link definitions with paths come first, and the first definition of a link counts.
    macro_rules! pages {
        ($($page:ident)*) => {
            pages!(@each [$(concat!("[", stringify!($page), "]: crate::docs::", stringify!($page), "\n")),*] $($page)*);
        };
        (@each $links:tt $($page:ident)*) => { $(pages!(@page $links $page);)* };
        (@page [$($link:expr),*] $page:ident) => {
            #[doc = concat!($($link),*)]
            #[doc = include_str!("../docs/items.txt")]
            #[doc = include_str!(concat!("../docs/", stringify!($page), ".md"))]
            pub mod $page {}
        };
    }

    pages! {
        algorithms comparison cookbook fleet gateway getting_started keys migration operating
        outages promises redis serve speed testing threats tiers waiting
    }
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
    RateLimiter, Store, StoreError,
};
pub use sluicegate_core::{algorithm, calendar, clock, error, memory, policy, suspension};
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
#[doc(inline)]
pub use sluicegate_observed as observed;
#[cfg(feature = "redis")]
pub use sluicegate_redis::RedisStore;
#[cfg(feature = "resilient")]
#[doc(inline)]
pub use sluicegate_resilient as resilient;
#[cfg(feature = "resilient")]
#[cfg_attr(docsrs, doc(cfg(feature = "resilient")))]
pub use sluicegate_resilient::Resilient;
#[cfg(feature = "outgoing")]
#[cfg_attr(docsrs, doc(cfg(feature = "outgoing")))]
pub use sluicegate_tower::outgoing;
#[cfg(feature = "tower")]
pub use sluicegate_tower::{ClientIp, KeyExtractor, Limit, Meter, PeerIp, RateLimitLayer};
#[cfg(feature = "tower")]
pub use sluicegate_tower::{bandwidth, call, guard, limits, rate_limit, request_fields, settle};

/// The store of `#[rate_limited]` handlers, and its types.
///
/// [`with_rate_limits(&store)`](crate::RateLimitExt::with_rate_limits) on the router is enough for most. A [`RateLimitStore`](attribute::RateLimitStore) in
/// its place opens the limits when the router is built, so that a wrong variable or a taken name is an error
/// there, and gives access to each limiter by its name.
///
/// ```
/// use axum::{Router, routing::post};
/// use sluicegate::attribute::RateLimitStore;
/// use sluicegate::{MemoryStore, rate_limited};
///
/// #[rate_limited("5/min", name = "login")]
/// async fn login() -> &'static str {
///     "welcome"
/// }
///
/// let limits = RateLimitStore::new(&MemoryStore::new()).open(login)?;
/// let limiter = limits.limiter("login")?;
/// let app: Router = Router::new().route("/login", post(login)).layer(limits);
/// assert_eq!(limiter.policy().to_string(), "login: 5/min (gcra)");
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub mod attribute {
    pub use sluicegate_axum::{Attributed, RateLimitStore};
}

/// Limits that a fleet of instances shares, mostly decided in memory: wrappers of the shared store.
///
/// | store | what it saves | see |
/// |---|---|---|
/// | [`DenyCache`](fleet::DenyCache) | calls for keys that are refused | [`deny_cache`](fleet::deny_cache) |
/// | [`Leased`](fleet::Leased) | calls for keys that may pass | [`leased`](fleet::leased) |
/// | [`Sharded`](fleet::Sharded) | the slot of a Cluster that one hot key fills | [`sharded`](fleet::sharded) |
/// | [`Regional`](fleet::Regional) | calls to another region | [`regional`](fleet::regional) |
///
/// Each goes around any store, and can be left out. The order is fixed, from outside in: `Observed`, `DenyCache`, `Leased`,
/// [`Resilient`], `Sharded` or `Regional`; another order is an error that prints it. The [page on fleets](docs::fleet)
/// says when to switch on which.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::fleet::DenyCache;
/// use sluicegate::store::DecidedBy;
/// use sluicegate::{Policy, Resilient};
///
/// # let redis = sluicegate::MemoryStore::new();
/// let store = Resilient::builder(redis).replicas(4).build()?;
/// let store = DenyCache::builder(&store).longest(Duration::from_secs(2)).build()?;
/// let login = Policy::gcra("login", "5/min").on(&store)?;
///
/// for _ in 0..1_000 {
///     let decision = login.check("ada").now().expect("memory answers at once")?;
///     assert_eq!(decision.capacity(), 5);
/// }
/// let refused = login.check("ada").now().expect("memory answers at once")?;
/// assert_eq!(refused.decided_by(), DecidedBy::Cache);
/// assert_eq!(store.status().asked, 5); // as often as it was let pass
///
/// // The wrong order is an error when it is built.
/// assert!(Resilient::builder(&store).build().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "fleet")]
#[cfg_attr(docsrs, doc(cfg(feature = "fleet")))]
pub mod fleet {
    pub use sluicegate_fleet::{DenyCache, Leased, Regional, Sharded, deny_cache, leased, regional, sharded};
}

/// Limits on how many requests of a key are under way at once.
///
/// A rate limits how often requests begin; this limits how many are in progress, for downloads, streams and long queries.
/// It counts in one process, so that N instances admit N times as many, or [on a store](in_flight::InFlightBuilder::on) that they
/// share.
///
/// ```
/// use axum::{Router, routing::get};
/// use sluicegate::in_flight::{InFlight, InFlightLayer};
///
/// let downloads = InFlight::new("downloads", 2)?;
/// let app: Router = Router::new()
///     .route("/file", get(|| async { "a long file" }))
///     // Of each peer address two at once; a permit is held until the last byte is sent.
///     .layer(InFlightLayer::new(downloads.clone()));
/// assert_eq!(downloads.in_use("ada"), 0);
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
///
/// If the service itself is the limit, [`InFlight::adaptive`](in_flight::InFlight::adaptive) finds the number of requests that it can
/// handle, and sheds the least important first.
#[cfg(feature = "in-flight")]
#[cfg_attr(docsrs, doc(cfg(feature = "in-flight")))]
pub mod in_flight {
    pub use sluicegate_in_flight::{
        Acquire, AdaptiveBuilder, AdaptiveMoment, AdaptiveStatus, Class, DemandsOf, InFlight,
        InFlightBuilder, NoPermit, NoPermitKind, Permit, PermitDemand, PermitGrant, PermitRequest,
        SharedPermits, SharedStatus, Sharing, adaptive,
    };
    #[cfg(feature = "tower")]
    pub use sluicegate_tower::in_flight::{
        HeldPermit, InFlightExplained, InFlightHandle, InFlightLayer, InFlightLimit, InFlightLimits,
        PermitBody, PermitExplained,
    };
}

/// Keys, which say whose bucket a request spends from, and the extractors that find them in requests.
///
/// | key | for |
/// |---|---|
/// | [`PeerIp`] | clients that connect to this server directly; the default |
/// | [`ClientIp`] | clients behind named proxies |
/// | [`ApiKey`](key::ApiKey), [`Bearer`](key::Bearer), [`Cookie`](key::Cookie) | secrets; kept as a digest only |
/// | [`BearerJwt`](key::BearerJwt) | the subject of a verified token |
/// | [`key_from_extractor`](key::key_from_extractor), [`key_from_extension`](key::key_from_extension), [`key_fn`](key::key_fn) | users, sessions, tenants that the application knows |
/// | [`Route`](key::Route), [`RequestMethod`](key::RequestMethod), [`RequestPath`](key::RequestPath) | the target of a request |
/// | [`HeaderKey`](key::HeaderKey) | a header that a trusted proxy writes |
///
/// A tuple of extractors has a bucket per combination, and [`or`](key::KeyExtractor::or) asks the next extractor if one
/// finds no key. Text from a client is not trusted unless an extractor is told to trust it.
///
/// ```
/// use sluicegate::key::{HeaderKey, RequestMethod};
/// use sluicegate::{ClientIp, KeyExtractor, Limit, MemoryStore, Policy};
///
/// let api = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
/// // A bucket for each method of each tenant, which our gateway names; without a tenant, of each client behind our proxies.
/// let caller = (HeaderKey::new("x-tenant")?, RequestMethod).or(ClientIp::behind(["10.0.0.0/8"])?);
/// let limit = Limit::new(api).key(caller);
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
pub mod key {
    #[cfg(feature = "axum")]
    pub use sluicegate_axum::key_from_extractor;
    pub use sluicegate_core::key::{AsKey, Key, KeyKind, KeyRef};
    #[cfg(feature = "axum")]
    pub use sluicegate_tower::key::Route;
    #[cfg(feature = "secrets")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secrets")))]
    pub use sluicegate_tower::key::{ApiKey, Bearer, Cookie};
    #[cfg(feature = "jwt")]
    pub use sluicegate_tower::key::{BearerJwt, Claims};
    #[cfg(feature = "tower")]
    pub use sluicegate_tower::key::{
        ClientIp, Extraction, ForwardedFaults, HeaderKey, IntoNetworks, KeyExtractor, MissingKey, Networks,
        OnMalformed, OnMissingKey, PeerAddr, PeerIp, RequestMethod, RequestPath, RequestView, extract_fn,
        key_fn, key_from_extension,
    };
}

/// The handle of a policy on a store, with its decisions, turns and receipts.
///
/// It limits anything with a key, without HTTP: jobs, messages, terminal logins.
///
/// ```
/// use sluicegate::limiter::Inherit;
/// use sluicegate::{MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mail = Policy::gcra("mail", "3/h").on(&MemoryStore::new())?;
/// assert_eq!(mail.check("ada").await?.remaining(), 2);
///
/// // Ten an hour from now on, for every handle of this policy. The spent unit stays spent.
/// mail.replace(Policy::gcra("mail", "10/h").build()?, Inherit::Spent)?;
/// assert_eq!(mail.peek("ada").await?.remaining(), 9);
/// # Ok(())
/// # }
/// ```
pub mod limiter {
    pub use sluicegate_core::limiter::{
        Acquired, Change, Check, Inherit, OverrideError, OverrideErrorKind, Overrides, RateLimiter, Receipt,
        Suspensions, Turn, change_all, check_all, open_all, policies, replace_all,
    };
    pub use sluicegate_core::policy::{Override, OverrideBuilder};
}

/// For authors of stores and of store wrappers; services do not need it.
///
/// A store answers asks: data that name a prepared policy, a key, a cost and a mode. `sluicegate-conformance` is the test suite that
/// every store has to pass.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate::{MemoryStore, Policy, Store};
///
/// // Limiters and layers see all stores as this one type, so that a service may choose one by its configuration.
/// let store: Arc<dyn Store> = MemoryStore::new().into();
/// let api = Policy::gcra("api", "10/s").on(Arc::clone(&store))?;
/// let names: Vec<_> = store.limiters().all().iter().map(|open| open.policy().name().to_owned()).collect();
/// assert_eq!(names, ["api"]);
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
pub mod store {
    pub use sluicegate_core::limiter::Inherit;
    pub use sluicegate_core::store::{
        Alarm, AlarmCause, Ask, DecidedBy, DecisionFuture, Event, ForwardedFault, IntoStore, Judged,
        KnownKeys, Limiters, Listener, Listeners, Mode, Place, PreparedPolicy, QuotaStatus, Registry, Shared,
        SharedFuture, Store, StoreStatus, Subject, Trace, Undecided, Write, judge,
    };
    pub use sluicegate_core::wrap::{OwnedAsk, Within, Wrap};
}

/// A waiting room for flash sales: visitors get a fair place in line instead of a refusal.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use axum::{Router, routing::get};
/// use sluicegate::ClientIp;
/// use sluicegate::overflow::line::MemoryLine;
/// use sluicegate::overflow::{WaitingRoom, WaitingRoomLayer};
///
/// let sale = WaitingRoom::builder("sale", "1000/s")
///     .opens_at(SystemTime::now() + Duration::from_secs(600))
///     .pass_lasts(Duration::from_secs(900))
///     .places_per_client(5, ClientIp::behind(["10.0.0.0/8"])?)
///     .build(MemoryLine::new())?;
/// let app: Router = Router::new()
///     .route("/", get(|| async { "the shop" }))
///     .layer(WaitingRoomLayer::new(sale.clone()));
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
#[cfg(feature = "overflow")]
#[cfg_attr(docsrs, doc(cfg(feature = "overflow")))]
pub mod overflow {
    #[cfg(feature = "deferred")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deferred")))]
    pub use sluicegate_overflow::deferred;
    pub use sluicegate_overflow::{
        NamedRoom, Pass, Reason, Reply, RoomError, Rooms, WaitingRoom, WaitingRoomBuilder, WaitingRoomLayer,
        line,
    };
}

/// The Redis store's settings: servers, deadline, TLS, pools, names of keys.
///
/// ```no_run
/// use std::time::Duration;
/// use sluicegate::redis::RedisStore;
/// use sluicegate::{Policy, Resilient};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sluicegate::ConfigError> {
/// let redis = RedisStore::builder().deadline(Duration::from_millis(20)).connect("redis://127.0.0.1:6379")?;
/// // A store wrapper handles an outage, by the setting of each policy.
/// let store = Resilient::builder(redis).replicas(4).build()?;
/// let api = Policy::gcra("api", "100/min").on(&store)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis {
    #[cfg(feature = "redis-deadpool")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis-deadpool")))]
    pub use sluicegate_redis::DeadPool;
    pub use sluicegate_redis::{HashSlot, PolicyKeys, RedisStore, RedisStoreBuilder, Script};
}

/// The answers to a client: the header fields of every response, and the response to a refused request.
///
/// By default every response has `X-RateLimit-*`, a refusal has `RateLimit-Policy` and `RateLimit` as well, and its body is problem details
/// (RFC 9457). [`HeaderFields`](respond::HeaderFields) has other fields, and a closure makes any other response:
///
/// ```
/// use axum::{Router, response::Html, routing::get};
/// use sluicegate::respond::HeaderFields;
/// use sluicegate::{MemoryStore, Policy, RateLimitExt, RateLimitLayer};
///
/// let limiter = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
/// let limit = RateLimitLayer::builder(limiter)
///     .headers(HeaderFields::Ietf)
///     .respond(|refusal| (refusal.status(), Html("<h1>A moment, please</h1>")))
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).rate_limit(limit);
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
///
/// The layer adds `Retry-After` and `Cache-Control: no-store` to the response of a closure.
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod respond {
    #[cfg(feature = "axum")]
    pub use sluicegate_axum::NotLimited;
    #[cfg(feature = "grpc")]
    pub use sluicegate_tower::respond::{GrpcOr, GrpcStatus};
    pub use sluicegate_tower::respond::{
        HeaderFields, IntoRefusalResponse, LegacyReset, ProblemJson, Refusal, RefusalReason, Respond,
    };
}

/// Limits in a file, changed without a deploy.
///
/// ```
/// use sluicegate::MemoryStore;
/// use sluicegate::rules::{Rules, RulesFile, Variables};
///
/// let text = "
/// version: 1
/// policies:
///   login: { quota: [5/min, 20/h], on_outage: deny }
///   api: { quota: 100/min burst 20 }
/// rules:
///   - { name: login, group: endpoint, only_if: { path: /login, method: POST }, limit: login, key: client }
///   - { name: rest, group: endpoint, limit: api, key: client }
/// ";
/// let file = RulesFile::parse("rules.yaml", text, &Variables::environment())?;
/// let layer = Rules::new(&MemoryStore::new(), file)?.layer();
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With [`Rules::open`](rules::Rules::open) and [`follow`](rules::Rules::follow) the file is read again when it changes, with
/// `reload_on_sighup` when the process gets SIGHUP; [`listen`](rules::Rules::listen) shows errors of the file on a status page.
#[cfg(feature = "rules")]
#[cfg_attr(docsrs, doc(cfg(feature = "rules")))]
pub mod rules {
    pub use sluicegate_rules::{
        Changes, DeferralExplained, Descriptor, Descriptors, Explained, Problem, ReadingRulesLayer,
        RoomExplained, RuleExplained, Rules, RulesBuilder, RulesError, RulesFile, RulesLayer, RulesService,
        Section, Variables, json_schema,
    };
}

/// The status page: which keys are limited, by which policy and why, and actions on them.
///
/// ```
/// use axum::Router;
/// use sluicegate::observed::Observed;
/// use sluicegate::status::StatusPage;
/// use sluicegate::{MemoryStore, Policy, RateLimitExt, RateLimitLayer};
///
/// let store = Observed::named("memory", MemoryStore::new())?;
/// let layer = RateLimitLayer::new(Policy::gcra("api", "100/min").on(&store)?);
/// let page = StatusPage::new(&store)
///     .limits("api", layer.limits_handle())
///     // Whatever asks for a password is a layer in front, which leaves a name.
///     .guard(|request| request.headers.get("x-authenticated-user")?.to_str().ok().map(str::to_owned))
///     .secret(*b"32 bytes at random, from a vault")
///     .origin("https://ops.example.org")
///     .build()?;
/// let app: Router = Router::new().rate_limit(layer).nest_service("/status", page);
/// # Ok::<(), sluicegate::ConfigError>(())
/// ```
#[cfg(feature = "status")]
#[cfg_attr(docsrs, doc(cfg(feature = "status")))]
pub mod status {
    pub use sluicegate_status::{StatusPage, StatusPageBuilder};
}
