//! What `#[rate_limited]` expands to needs this at run time.

mod call;
mod limited;
mod limits;
mod source;

pub use self::call::{Answer, Limits, any, check_future, check_response, run};
pub use self::limited::{Limited, Skip, Via};
pub use self::limits::{BoxRespond, RateLimits};
pub use self::source::{Attribute, Direct, Fallible, IntoKey, reject};
