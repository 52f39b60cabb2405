//! A field of a request's JSON as its key: [`FieldKey`].

use sluicegate_core::key::KeyKind;
use sluicegate_core::{ConfigError, Key};

use crate::json::FieldPath;
use crate::key::text::bounded;
use crate::key::{Extraction, KeyExtractor, KeyForm, RequestView};
use crate::request_fields::RequestFields;

/// One bucket per value of a field of the request's JSON, such as the `model`. It needs a
/// [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) around the limits that reads this field.
///
/// Requests whose body, or whose field, cannot be read share a bucket, whatever the limit does without a key.
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
        let fields = RequestFields::of(request);
        if let Some(rejection) = fields.and_then(RequestFields::rejection) {
            return rejection.into();
        }
        match fields.and_then(|fields| fields.text(&self.0)) {
            Some(text) if !text.trim().is_empty() => Extraction::found(bounded(text.as_bytes())),
            None if fields.is_some_and(|fields| fields.may_be(&self.0, |_| true)) => {
                Extraction::found(Key::shared().and("unreadable"))
            }
            _ => Extraction::missing(format!("the request has no field {}", self.0)),
        }
    }

    fn is_invented(&self) -> bool {
        true
    }
}

/// No key for any request: it only refuses those whose body cannot be read, if they are to be
/// [refused](crate::request_fields::OnUnreadable::Reject). Put it before the key of a limit with a condition or a cost that asks for the body,
/// as `RejectUnreadable.or(key)`; a [`FieldKey`] does the same.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it has no settings")]
pub struct RejectUnreadable;

impl KeyExtractor for RejectUnreadable {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match RequestFields::of(request).and_then(RequestFields::rejection) {
            Some(rejection) => rejection.into(),
            None => Extraction::missing("the request has no other key"),
        }
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Address
    }

    fn forms(&self) -> Vec<KeyForm> {
        Vec::new()
    }
}
