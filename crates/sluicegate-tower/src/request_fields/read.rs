//! The fields of a request that were found: [`RequestFields`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::json::{FieldPath, FieldValue, JsonScanner};
use crate::key::RequestView;

/// The fields of a request's JSON that a [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) has found, in the extensions of
/// the request. Cheap to clone.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::key::RequestView;
/// use sluicegate_tower::request_fields::RequestFields;
///
/// /// A condition: `Limit::only_if(is_large)`.
/// fn is_large(request: RequestView<'_>) -> bool {
///     RequestFields::of(request).and_then(|fields| fields.text("model")) == Some("large")
/// }
/// # assert!(!is_large((&Request::new(())).into()));
/// ```
#[derive(Clone)]
pub struct RequestFields(Arc<[(FieldPath, FieldValue)]>);

impl RequestFields {
    pub(super) fn found_by(scanner: JsonScanner) -> Self {
        Self(scanner.into_found().collect())
    }

    /// The fields of this request, if its body was read.
    pub fn of(request: RequestView<'_>) -> Option<&Self> {
        request.extensions.get()
    }

    /// The text of a field; `None` if it was not found, or is not a text.
    pub fn text(&self, field: &str) -> Option<&str> {
        match self.value(field)? {
            FieldValue::Text(text) => Some(text),
            FieldValue::Number(_) => None,
        }
    }

    /// The number of a field; `None` if it was not found, or is not a whole number.
    pub fn number(&self, field: &str) -> Option<u64> {
        match self.value(field)? {
            FieldValue::Number(number) => Some(*number),
            FieldValue::Text(_) => None,
        }
    }

    /// The text of a field, or its number in digits; `None` if it was not found.
    pub fn shown(&self, field: &str) -> Option<Cow<'_, str>> {
        Some(match self.value(field)? {
            FieldValue::Text(text) => text.into(),
            FieldValue::Number(number) => number.to_string().into(),
        })
    }

    pub(crate) fn value(&self, field: &str) -> Option<&FieldValue> {
        self.0.iter().find(|(path, _)| path.is(field)).map(|(_, found)| found)
    }
}

impl fmt::Debug for RequestFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Clients write the values, which may be secrets.
        f.debug_set().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}
