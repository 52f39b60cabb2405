//! The runtime of `#[rate_limited]`: its expansion calls this.

mod arguments;
mod asked;
mod key;
mod limited;
mod made;
mod name;
mod run;
mod source;
mod store;

pub use self::arguments::{Arguments, Extracting};
pub use self::asked::Attributed;
pub use self::key::{Direct, Fallible, IntoKey, reject};
pub use self::limited::{Limited, NoState, Skip, Via};
pub use self::run::{Fallback, any, check_future, check_response, response};
pub use self::source::{Attribute, Draft, Source};
pub use self::store::RateLimitStore;
