//! Fields of a request's JSON or form, for limits that need them before the request continues, such as its model or its most tokens.
//!
//! A [`RequestFieldsLayer`] around the limits reads the body up to a bound, finds some of its fields, and passes the body on unchanged. Limits
//! inside it get them as [`RequestFields`]: a [`FieldKey`] makes a key of a field, [`Reserve::json`](crate::settle::Reserve::json) a
//! reservation, and conditions read them.
//!
//! ```
//! use std::convert::Infallible;
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::request_fields::{FieldKey, RequestFieldsLayer};
//! use sluicegate_tower::settle::Reserve;
//! use sluicegate_tower::{Limit, RateLimitLayer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokens = Policy::fixed_window("tokens", "10000/min").on(&MemoryStore::new())?;
//! let limit = Limit::new(tokens.clone())
//!     .key(FieldKey::new("model")?)
//!     .reserve(Reserve::json("max_tokens", 4096)?.at_most(8192));
//! let service = ServiceBuilder::new()
//!     .layer(RequestFieldsLayer::new(["model", "max_tokens"])?)
//!     .layer(RateLimitLayer::new(limit))
//!     .service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
//!
//! let body = Full::new(Bytes::from(r#"{"model": "small", "max_tokens": 300}"#));
//! assert_eq!(service.oneshot(Request::new(body)).await?.status(), 200);
//! assert_eq!(tokens.peek("small").await?.remaining(), 9_700);
//! # Ok(())
//! # }
//! ```
//!
//! # Forms
//! A body whose `Content-Type` is `application/x-www-form-urlencoded` is read as a form, where a dot is a part of a name: `user=ada&n.best=2`. A name
//! that occurs twice has no value that can be read.
//!
//! # When not to use it
//! - If a header has the same value: it needs no body.
//! - As proof of anything: clients write any value into a body, and may write a name twice; in JSON it counts with its last value,
//!   as in `serde_json`. So put a limit for all models beside the limits for each.
//!
//! # Bodies that cannot be read
//! A client must not choose whether a limit applies. So a body that is encoded, is neither a JSON object nor a form, is too long or too slow may have any
//! value in each field, unless you [choose otherwise](OnUnreadable): a condition by [`RequestFields::may_be`] holds, a [`FieldKey`] is
//! a bucket of such requests, and [`Reserve::json`](crate::settle::Reserve::json) reserves the most. The same holds for a field
//! that is `null`, a list or an object; and a reservation also takes a negative number, or one that is not whole, for unreadable.

mod body;
mod form;
mod key;
mod layer;
mod read;

pub use self::body::ReadBody;
pub use self::key::{FieldKey, RejectUnreadable};
pub use self::layer::{ReadFields, RequestFieldsLayer};
pub use self::read::{OnUnreadable, RequestFields};
