//! Who is asking: [`KeyExtractor`], the extractors, and the ways to combine them.

mod extraction;
mod extractor;
mod ip;
pub(crate) mod missing;
mod path;
mod route;
mod secret;
mod simple;
mod view;

pub use self::extraction::Extraction;
pub use self::extractor::{KeyExtractor, Or};
pub use self::ip::{ClientIp, ForwardedFaults, Networks, OnMalformed, PeerAddr, PeerIp};
pub use self::missing::{MissingKey, OnMissingKey};
pub use self::path::RequestPath;
pub(crate) use self::path::hex;
pub use self::route::RequestMethod;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use self::route::Route;
pub(crate) use self::secret::bounded;
pub use self::secret::{ApiKey, Bearer, Cookie};
#[cfg(feature = "jwt")]
#[cfg_attr(docsrs, doc(cfg(feature = "jwt")))]
pub use self::secret::{BearerJwt, Claims};
pub(crate) use self::simple::header_name;
pub use self::simple::{Constant, FromExtension, HeaderKey, KeyFn, key_fn};
pub use self::view::RequestView;
