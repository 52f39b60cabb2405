//! Who is asking: [`KeyExtractor`], the extractors, and the ways to combine them.

mod extraction;
mod extractor;
mod function;
mod header;
mod ip;
pub(crate) mod missing;
mod path;
mod route;
#[cfg(feature = "secrets")]
mod secret;
mod text;
mod view;

pub use sluicegate_core::key::KeyKind;

pub use self::extraction::Extraction;
pub use self::extractor::KeyExtractor;
pub use self::function::{extract_fn, key_fn, key_from_extension};
pub use self::header::HeaderKey;
pub use self::ip::{ClientIp, ForwardedFaults, Networks, OnMalformed, PeerAddr, PeerIp};
pub use self::missing::{MissingKey, OnMissingKey};
pub use self::path::RequestPath;
pub use self::route::RequestMethod;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use self::route::Route;
#[cfg(feature = "secrets")]
#[cfg_attr(docsrs, doc(cfg(feature = "secrets")))]
pub use self::secret::{ApiKey, Bearer, Cookie};
#[cfg(feature = "jwt")]
#[cfg_attr(docsrs, doc(cfg(feature = "jwt")))]
pub use self::secret::{BearerJwt, Claims};
pub use self::view::RequestView;
