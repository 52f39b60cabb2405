//! Secrets that clients send: keys are digests, never the secrets themselves.
//!
//! A digest is keyed by the kind of the secret and its name, so that the same text in a cookie and
//! in a header makes two keys. It is 128 bits long, and no store, log or memory dump reveals a secret.
//! A request with two different values is refused: the application might read the other
//! one.

mod cookie;
mod digest;
#[cfg(feature = "jwt")]
mod jwt;
mod opaque;
#[cfg(feature = "jwt")]
mod verifier;

pub use self::cookie::Cookie;
#[cfg(feature = "jwt")]
pub use self::jwt::{BearerJwt, Claims};
pub use self::opaque::{ApiKey, Bearer};
