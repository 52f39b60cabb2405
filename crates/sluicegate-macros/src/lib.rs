//! `#[rate_limited]`: a limit on an axum handler, written where the handler is.
//!
//! This crate is part of `sluicegate`, whose feature `macros` re-exports the attribute with what it needs at run time;
//! use that one. Limits on whole routers, and on services that are not axum handlers, are `.rate_limit(..)` and
//! `RateLimitLayer` there.
//!
//! ```
//! use axum::{Router, routing::{get, post}};
//! use sluicegate::{Header, KeyExtractor, MemoryStore, PeerIp, RateLimitExt, rate_limited};
//!
//! #[rate_limited("5/min")]
//! async fn login() -> &'static str {
//!     "welcome"
//! }
//!
//! #[rate_limited("100/min", algorithm = "token-bucket", key = Header::new("x-api-key")?.or(PeerIp::new()), cost = 10)]
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
//! # One definition of a limit
//! What an attribute says is checked while it is compiled, by the very code that would refuse it at run time: this
//! crate depends on `sluicegate-core` to read quotas and algorithms and to build policies, so that the two can never
//! disagree. The price is that the core is also compiled for the compiler.

mod args;
mod check;
mod expand;
mod handler;
mod values;
mod words;

use proc_macro::TokenStream;

/// Puts a limit in front of an axum handler.
///
/// ```
/// use axum::{Json, Router, extract::State, routing::post};
/// use sluicegate::{Header, MemoryStore, RateLimitExt, rate_limited};
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
///     key = Header::new("x-api-key"),
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
/// It behaves as `.rate_limit(..)` on the handler's route does: the same decisions, header fields and refusals, before
/// any extractor of the handler runs. The store comes from the router: `.with_rate_limits(&store)`, after its routes.
/// Without it the handler answers 500 and says so. Quotas, names, algorithms and costs are checked by the compiler.
///
/// # Parameters
/// | parameter | what it says | default |
/// |---|---|---|
/// | `"5/min"`, `"10/s burst 20"` | the quota; of several, all must have room | required |
/// | `name = "login"` | the policy's name in header fields, logs and the store | the function's name |
/// | `algorithm = "sliding-counter"` | one of `Algorithm`'s names | `"gcra"`, as in the README |
/// | `key = Header::new("x-api-key")` | whose bucket: a `KeyExtractor`, or a `Result` of one; `?` may be used | `PeerIp` |
/// | `cost = 2` | units that a request spends: a number, a constant, or a closure from the request's `Parts` | 1 |
/// | `only_if = \|parts\| ..` | to which requests the limit applies | all |
/// | `refund_if = \|head\| ..` | which responses give the request its units back | none |
/// | `on_exceeded = "wait 5s"` | `"deny"`, or how long a request may wait for its turn | `"deny"` |
/// | `on_missing_key = 401` | `"share"` one bucket, `"skip"` the limit, or refuse with a status | `"share"` |
/// | `on_outage = "allow"` | `"local"`, `"allow"` or `"deny"` while the store cannot be reached | `"local"` |
/// | `shadow` | decide, count and log, and enforce nothing | |
/// | `hidden` | keep the limit out of header fields and bodies | |
/// | `crate = other::path` | where `sluicegate` is found | `::sluicegate` |
///
/// Several attributes on one handler are several limits, each with a name, a key and a cost of its own; a request
/// spends from all of them or from none:
///
/// ```
/// use sluicegate::{Header, rate_limited};
///
/// #[rate_limited("60/min", name = "search.address")]
/// #[rate_limited("1000/h", name = "search.key", key = Header::new("x-api-key"), on_missing_key = "skip")]
/// async fn search() -> &'static str {
///     "nothing found"
/// }
/// # _ = axum::routing::get::<_, _, ()>(search);
/// ```
///
/// # Names
/// Handlers whose policies are equal, name included, share their buckets, on one store. A name that is in use there for
/// a different policy is a mistake: the handler answers 500 and says so.
///
/// # With other attributes
/// Those below `#[rate_limited]` apply to the handler's own code, behind the limit; those above see the handler as it
/// is written. Put what makes items of its own, such as `#[utoipa::path]`, above. `#[axum::debug_handler]` and
/// `#[tracing::instrument]` work in both places, but for a `debug_handler` above a handler without arguments.
///
/// # Limits of the attribute
/// - It is for free functions that are `async`: not for methods, and not for closures, which take `.rate_limit(..)`.
/// - The function's arguments become those of a handler behind a limit, so it can no longer be called by hand; keep
///   what tests call in a function of its own.
/// - In a generic handler, the future must be `Send` for every type that the bounds allow, and the types `'static`.
#[proc_macro_attribute]
pub fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::rate_limited(arguments.into(), item.into()).into()
}
