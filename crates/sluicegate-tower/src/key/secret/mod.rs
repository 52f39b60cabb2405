//! Secrets that clients show: keys are made of their digests, never of themselves.

mod api_key;
mod bearer;
mod cookie;
mod digest;
#[cfg(feature = "jwt")]
mod jwt;

pub use self::api_key::ApiKey;
pub use self::bearer::Bearer;
pub use self::cookie::Cookie;
#[cfg(feature = "jwt")]
pub use self::jwt::{BearerJwt, Claims};
