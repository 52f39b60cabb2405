//! The runtime of `#[rate_limited]`: its expansion calls this.

mod limited;
mod name;
mod run;
mod source;
mod store;

pub use self::limited::{Arguments, Extracting, Limited, NoState, Skip, Via};
pub use self::run::{Attributed, Fallback, any, check_future, check_response, response};
pub use self::source::{Attribute, Direct, Draft, Fallible, IntoKey, Source, reject};
pub use self::store::RateLimitStore;
