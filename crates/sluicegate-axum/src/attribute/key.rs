//! The values of `key` and `on_missing_key`.

use axum::http::StatusCode;
use sluicegate_core::ConfigError;
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::{KeyExtractor, Limit};

/// A value of `key = ..`. `M` only keeps the two implementations apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose bucket a request spends from",
    label = "not a `KeyExtractor`, nor a `Result` of one",
    note = "write `key = HeaderKey::new(\"x-api-key\")`, `key = key_fn(|request| ..)`, or any other `KeyExtractor`"
)]
pub trait IntoKey<M> {
    /// Puts the key on a limit.
    ///
    /// # Errors
    /// The error with which the extractor was made.
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError>;
}

/// An extractor that is not in a `Result`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Direct;

/// A `Result` of an extractor.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fallible;

// Otherwise the compiler would only report the missing `KeyExtractor`.
#[diagnostic::do_not_recommend]
impl<K: KeyExtractor> IntoKey<Direct> for K {
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError> {
        Ok(limit.key(self))
    }
}

impl<K: KeyExtractor> IntoKey<Fallible> for Result<K, ConfigError> {
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError> {
        Ok(limit.key(self?))
    }
}

/// Refuses requests without a key with this status, which the attribute has checked.
pub fn reject(status: u16) -> OnMissingKey {
    OnMissingKey::Reject(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST))
}
