//! `#[rate_limited]`: a limit on an axum handler, written at the handler.
//!
//! This crate is part of `sluicegate`, whose feature `macros` re-exports the attribute with its runtime;
//! use that crate.
//!
//! ```
//! use axum::{Router, routing::{get, post}};
//! use sluicegate::{KeyExtractor, MemoryStore, PeerIp, RateLimitExt, rate_limited};
//! use sluicegate::key::HeaderKey;
//!
//! #[rate_limited("5/min")]
//! async fn login() -> &'static str {
//!     "welcome"
//! }
//!
//! #[rate_limited("100/min", algorithm = "token-bucket", key = HeaderKey::new("x-api-key")?.or(PeerIp::new()), cost = 10)]
//! async fn report() -> &'static str {
//!     "a long report"
//! }
//!
//! let app: Router = Router::new()
//!     .route("/login", post(login))
//!     .route("/report", get(report))
//!     .with_rate_limits(&MemoryStore::new());
//! ```
//!
//! # When not to use it
//! - For routers, and for services that are not axum handlers: use `.rate_limit(..)` and `RateLimitLayer`.
//! - For limits that operators change while the service runs: write them into a rules file.
//! - For quotas from a database: `Limit::quota_by` finds those of each key.
//!
//! # One definition of a limit
//! An attribute is checked while it is compiled, by the same code that would refuse it at run time: this
//! crate depends on `sluicegate-core` to read quotas and algorithms and to build policies, so that the two can never
//! disagree. The cost is that the core is also compiled for the macro.

mod expand;

use proc_macro::TokenStream;

/// Puts a limit in front of an axum handler.
///
/// ```
/// use axum::{Json, Router, extract::State, routing::post};
/// use sluicegate::{MemoryStore, RateLimitExt, rate_limited};
/// use sluicegate::key::HeaderKey;
///
/// #[derive(Clone)]
/// struct App;
///
/// /// Five a minute from each address.
/// #[rate_limited("5/min")]
/// async fn login(State(_app): State<App>, Json(user): Json<String>) -> String {
///     format!("welcome, {user}")
/// }
///
/// /// Two quotas together, for each API key; a request that exceeds them waits for up to five seconds.
/// #[rate_limited(
///     "100/h", "10/min burst 20",
///     key = HeaderKey::new("x-api-key"),
///     cost = 2,
///     on_exceeded = "wait 5s",
///     on_missing_key = 401,
/// )]
/// async fn upload(body: String) -> String {
///     format!("stored {} bytes", body.len())
/// }
///
/// let app: Router = Router::new()
///     .route("/login", post(login))
///     .route("/upload", post(upload))
///     .with_rate_limits(&MemoryStore::new())
///     .with_state(App);
/// ```
///
/// It behaves like `.rate_limit(..)` on the handler's route: the same decisions, header fields and refusals, before
/// any extractor of the handler runs. The store comes from the router: `.with_rate_limits(&store)`, after its routes.
/// Without a store the handler answers 500 and logs an error. The compiler checks quotas, names, algorithms and costs.
///
/// # Parameters
/// | parameter | what it says | default |
/// |---|---|---|
/// | `"5/min"`, `"10/s burst 20"`, `"60/min burst 100 start 10"`, `"10000/d by fixed-window"` | the quota; if there are several, all must have room | required |
/// | `quota = LOGIN` | a quota from a constant, text or `Quota`; or `quota = env("LOGIN_LIMIT")` from the environment | |
/// | `name = "login"` | the policy's name in header fields, logs and the store | the function's path, `shop.users.login` |
/// | `algorithm = "sliding-counter"` | one of `Algorithm`'s names | `"gcra"`, as in the README |
/// | `key = HeaderKey::new("x-api-key")` | whose bucket: a `KeyExtractor`, or a `Result` of one; `?` may be used | `PeerIp` |
/// | `cost = 2` | units that a request spends: a number, a constant, or a closure from the request | 1 |
/// | `only_if = \|parts\| ..` | to which requests the limit applies | all |
/// | `refund_if = \|head\| ..` | which responses give the request its units back | none |
/// | `on_exceeded = "wait 5s"` | `"deny"`, or the longest wait for a turn, at most one hour | `"deny"` |
/// | `on_missing_key = 401` | `"share"` one bucket, `"skip"` the limit, or refuse with a status | `"share"`; 500 without any peer address |
/// | `on_outage = "allow"` | `"local"`, `"allow"`, `"deny"`, or a quota for this instance such as `"1000/s"`, while the store cannot be reached | `"local"` |
/// | `fallback = path::to::busy` | a handler that answers requests that the limits refuse | the refusal |
/// | `shadow` | decide, count and log, but enforce nothing | |
/// | `hidden` | keep the limit out of header fields and bodies | |
/// | `count_rejected` | count refused requests too, so that a client has to pause | |
/// | `crate = other::path` | where `sluicegate` is found | `::sluicegate` |
///
/// Several attributes on one handler are several limits, each with a name, a key and a cost of its own; a request
/// spends from all of them or from none:
///
/// ```
/// use sluicegate::rate_limited;
/// use sluicegate::key::HeaderKey;
///
/// #[rate_limited("60/min", name = "search.address")]
/// #[rate_limited("1000/h", name = "search.key", key = HeaderKey::new("x-api-key"), on_missing_key = "skip")]
/// async fn search() -> &'static str {
///     "nothing found"
/// }
/// # _ = axum::routing::get::<_, _, ()>(search);
/// ```
///
/// # Names
/// By default a limit is named after its handler, with its module and crate: `shop::users::create` makes
/// `shop.users.create`. In a path with more than 64 letters, a hash of the whole path replaces the front; a path with characters that
/// a name cannot have gets that hash too. A `name = ".."` keeps the buckets of a store across a rename of the function.
///
/// Handlers with equal policies share their buckets, on one store, if they have one `name`. These are mistakes: two different
/// policies under one name, and two functions with one name in one module, such as methods of two types, without a `name`.
/// The second handler answers a plain 500, and the log names both; with `RateLimitStore::open` it is an error when
/// the router is built.
///
/// # Quotas from elsewhere
/// A constant is checked when the limit is made, and so is `quota = env("LOGIN_LIMIT")`, which is read only then; with
/// `env("LOGIN_LIMIT", "5/min")` the variable need not be set. `RateLimitStore::open` makes the limit when the router is
/// built, and its error names variable and value. `RateLimitStore::limiter` returns the `RateLimiter` of a limit, to replace its
/// policy at run time.
///
/// ```
/// use axum::{Router, routing::post};
/// use sluicegate::{ConfigError, MemoryStore, Policy, rate_limited};
/// use sluicegate::attribute::RateLimitStore;
/// use sluicegate::limiter::Inherit;
///
/// const SEARCH: &str = "100/min";
///
/// #[rate_limited(quota = env("LOGIN_LIMIT", "5/min"), name = "login")]
/// async fn login() {}
///
/// #[rate_limited(quota = SEARCH)]
/// async fn search() {}
///
/// # fn main() -> Result<(), ConfigError> {
/// let limits = RateLimitStore::new(&MemoryStore::new()).open(login)?.open(search)?;
/// let app: Router =
///     Router::new().route("/login", post(login)).route("/search", post(search)).layer(limits.clone());
///
/// // While it serves:
/// limits.limiter("login")?.replace(Policy::gcra("login", "2/min").build()?, Inherit::Spent)?;
/// # Ok(())
/// # }
/// ```
///
/// # Another answer
/// A `fallback` is an `async fn` like a handler, with extractors of its own: the state, the body, and
/// the decision as `Decided`. It answers requests that the handler's limits refuse; requests without a key, and
/// requests refused because of an outage, keep their refusal. Its response gets the refusal's header fields that it does not set
/// itself, without `Retry-After` if it is a success. An outer limit of the router sees the refusal, and gives its units
/// back.
///
/// ```
/// use axum::{extract::State, http::StatusCode};
/// use sluicegate::{Decided, rate_limited};
///
/// #[derive(Clone)]
/// struct Prices(&'static str);
///
/// #[rate_limited("10/min", fallback = last_known)]
/// async fn prices(State(prices): State<Prices>) -> String {
///     format!("{} fresh", prices.0)
/// }
///
/// async fn last_known(State(prices): State<Prices>, decided: Decided) -> (StatusCode, String) {
///     let wait = decided.retry_after().unwrap_or_default().as_secs();
///     (StatusCode::OK, format!("{} stale, for {wait} s", prices.0))
/// }
/// # _ = axum::routing::get::<_, _, Prices>(prices);
/// ```
///
/// A fallback has the state of the handler's first `State<..>`; a handler that needs no state takes
/// `_: State<App>`. Without it the fallback has no state.
///
/// # Methods
/// In an `impl` block, the router's state is the receiver: `get(Api::login)` calls `async fn login(&self, ..)` on the
/// state, as `State<Api>` extracts it; `self: Arc<Self>` and `self` work alike, and a function without a receiver works like
/// a free function. A method that uses a type parameter of its `impl` but neither `self` nor `Self` needs
/// `where Self: Sized`. The parameters of the attribute name constants as `Api::LIMIT`, not as `Self::LIMIT`; only
/// `fallback` may name `Self::busy`.
///
/// Methods of traits cannot have limits, with a body in the trait or in an `impl Trait for ..`: the compiler refuses a visibility at the
/// attribute, which every limited function has. Put the attribute on a method of the type's own `impl`, and call the trait's method from
/// there.
///
/// # With other attributes
/// Attributes below `#[rate_limited]` apply to the handler's own code, behind the limit; attributes above see the handler as
/// written. Put attributes that generate items, such as `#[utoipa::path]`, above. `#[axum::debug_handler]` and
/// `#[tracing::instrument]` work in both places, except for a `debug_handler` above a handler without arguments.
///
/// # Limits of the attribute
/// - It is for `async` functions and methods: not for closures, which take `.rate_limit(..)`, and not in traits.
/// - The function's arguments become those of a handler behind a limit, so it can no longer be called directly; put
///   code that tests call into a function of its own.
/// - In a generic handler, the future must be `Send` for every type that the bounds allow, and the types `'static`.
#[proc_macro_attribute]
pub fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::rate_limited(arguments.into(), item.into()).into()
}
