//! Calls: requests on their way to Redis and back, each by itself or with others.

mod batch;
mod begun;
mod caller;
mod request;

pub(crate) use self::batch::Batches;
pub(crate) use self::caller::Caller;
pub(crate) use self::request::Answer;
