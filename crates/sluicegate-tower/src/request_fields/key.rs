//! A field of a request's JSON as its key: [`FieldKey`].

use sluicegate_core::ConfigError;

use crate::json::FieldPath;
use crate::key::text::bounded;
use crate::key::{Extraction, KeyExtractor, RequestView};
use crate::request_fields::RequestFields;

/// One bucket per value of a field of the request's JSON, such as the `model`. It needs a
/// [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) around the limits that reads this field.
///
/// # When not to use it
/// Alone against clients: each client may write another value, and then has another bucket. Use it in a tuple with the key of the
/// client, if the values are few or verified, or with a limit for all values.
#[derive(Clone, Debug)]
pub struct FieldKey(String);

impl FieldKey {
    /// The field with this name; nested names are separated by dots.
    ///
    /// # Errors
    /// When `field` is not a valid path.
    pub fn new(field: &str) -> Result<Self, ConfigError> {
        FieldPath::parse(field).map(|path| Self(path.to_string()))
    }
}

impl KeyExtractor for FieldKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match RequestFields::of(request).and_then(|fields| fields.shown(&self.0)) {
            Some(text) if !text.trim().is_empty() => Extraction::found(bounded(text.as_bytes())),
            _ => Extraction::missing(format!("the request has no field {}", self.0)),
        }
    }

    fn is_invented(&self) -> bool {
        true
    }
}
