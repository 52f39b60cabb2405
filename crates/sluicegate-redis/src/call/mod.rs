//! Calls: requests on their way to Redis and back, each by itself or with others.
//!
//! A call begins when the store is asked, on the first poll that [`Caller::begin`] does itself, and
//! is finished by the store's runtime if its future is dropped. So a decision does not depend on
//! anybody waiting for it, and no charge is undone by a client that hangs up.

mod batch;
mod caller;
mod request;

pub(crate) use self::batch::Batches;
pub(crate) use self::caller::Caller;
pub(crate) use self::request::Answer;
