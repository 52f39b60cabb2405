//! Keys of requests: [`KeyExtractor`], the extractors, and the ways to combine them.
//!
//! | the client is identified by | extractor | trust |
//! |---|---|---|
//! | its connection | [`PeerIp`] | the kernel |
//! | its address behind proxies | [`ClientIp`] | the named proxies |
//! | a secret that it sends | `ApiKey`, `Bearer`, `Cookie` (feature `secrets`) | none, until it is verified |
//! | a signed token | `BearerJwt` (feature `jwt`) | its signature |
//! | the result of authentication | [`key_from_extension`], [`key_fn`] | your own code |
//! | the requested resource | `Route`, [`RequestMethod`], [`RequestPath`] | none: no key of a client |
//! | any header | [`HeaderKey`] | the client or proxy that sets the header |
//!
//! Keys combine in three ways: a tuple (a bucket per combination), [`or`](KeyExtractor::or) (the next
//! one if the first finds no key), and several limits (each with a bucket of its own, all must
//! have room).
//!
//! ```
//! use http::Request;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::key::{HeaderKey, RequestMethod};
//! use sluicegate_tower::limits::Limits;
//! use sluicegate_tower::{KeyExtractor, Limit, PeerIp};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A bucket for each tenant and method; requests without a tenant use the address.
//! let key = (HeaderKey::new("x-tenant")?, RequestMethod).or(PeerIp::new());
//! let limits = Limits::new(Limit::new(Policy::gcra("api", "1/min").on(&MemoryStore::new())?).key(key));
//!
//! let of = |tenant| Request::get("/").header("x-tenant", tenant).body(());
//! assert!(limits.decide(&of("t1")?).await.is_ok());
//! assert!(limits.decide(&of("t1")?).await.is_err());
//! assert!(limits.decide(&of("t2")?).await.is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! A key names a bucket, but does not prove that the client may use it: an extractor is not authentication. If clients choose the
//! value, for example in a header that no proxy sets, each value has a bucket of its own, and the limit limits no client.
//!
//! # When a key is missing
//! [`OnMissingKey`] sets whether such requests are refused, pass, or share one bucket. In a shared
//! bucket, one unknown client can shut out the others, so prefer a status if every
//! legitimate client has a key.

pub(crate) mod extraction;
mod extractor;
mod form;
mod function;
mod header;
mod ip;
pub(crate) mod missing;
mod path;
#[cfg(feature = "secrets")]
mod secret;
pub(crate) mod text;

pub use sluicegate_core::key::KeyKind;

pub use self::extraction::{Extraction, RequestView};
pub use self::extractor::KeyExtractor;
pub use self::form::KeyForm;
pub use self::function::{extract_fn, key_fn, key_from_extension};
pub use self::header::HeaderKey;
pub use self::ip::{
    ClientIp, ForwardedFaults, IntoNetworks, Networks, NoPeer, OnMalformed, PeerAddr, PeerIp,
};
#[doc(hidden)]
pub use self::missing::{Keyed, WhenMissing};
pub use self::missing::{MissingKey, OnMissingKey};
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use self::path::Route;
pub use self::path::{RequestMethod, RequestPath};
#[cfg(feature = "secrets")]
#[cfg_attr(docsrs, doc(cfg(feature = "secrets")))]
pub use self::secret::{ApiKey, Bearer, Cookie};
#[cfg(feature = "jwt")]
#[cfg_attr(docsrs, doc(cfg(feature = "jwt")))]
pub use self::secret::{BearerJwt, Claims};
