//! The fields of a request that were found: [`RequestFields`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use sluicegate_core::ConfigError;

use crate::json::{FieldPath, FieldValue, read_object};
use crate::key::text::unreadable;
use crate::key::{MissingKey, RequestView};
use crate::request_fields::form::{is_form, read_form};

/// The fields of a request's JSON or form that a [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) has found, in the extensions of
/// the request. Cheap to clone.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::key::RequestView;
/// use sluicegate_tower::request_fields::RequestFields;
///
/// /// A condition: `Limit::only_if(is_large)`.
/// fn is_large(request: RequestView<'_>) -> bool {
///     RequestFields::of(request).is_some_and(|fields| fields.may_be("model", |model| model == "large"))
/// }
/// # assert!(!is_large((&Request::new(())).into()));
/// ```
#[derive(Clone)]
pub struct RequestFields {
    read: FieldsRead,
    bytes: Option<u64>,
}

#[derive(Clone)]
enum FieldsRead {
    Found(Arc<[(FieldPath, FieldValue)]>),
    Unreadable(OnUnreadable),
}

/// The treatment of a request whose body cannot be read, although a condition, a key or a cost asks for it: a body that is encoded
/// (`Content-Encoding`), is neither a JSON object nor a form, is longer or slower than the bounds, or comes while too many are being read, and that of a
/// request for an upgrade. Written as `match`, `skip`, or the status of a refusal, such as `415`.
///
/// | | the request | take it when |
/// |---|---|---|
/// | [`Match`](Self::Match) | may have any value in each field: all conditions hold, its key is a bucket for such requests, its cost the most | a client shall not choose whether a limit applies |
/// | [`Reject`](Self::Reject) | is refused | every legitimate client sends JSON or a form |
/// | [`Skip`](Self::Skip) | has no fields | another limit counts it |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnreadable {
    /// Each condition on the body holds, so that limits apply.
    #[default]
    Match,
    /// Limits by a [`FieldKey`](crate::request_fields::FieldKey), and those whose key begins with
    /// [`RejectUnreadable`](crate::request_fields::RejectUnreadable), refuse the request with this status; conditions hold.
    Reject(StatusCode),
    /// The request counts as one without fields.
    Skip,
}

impl RequestFields {
    /// The fields with these values.
    pub(super) fn found(fields: impl IntoIterator<Item = (FieldPath, FieldValue)>) -> Self {
        Self { read: FieldsRead::Found(fields.into_iter().collect()), bytes: None }
    }

    /// The fields of a body of this length.
    pub(super) fn of_bytes(self, bytes: Option<u64>) -> Self {
        Self { bytes, ..self }
    }

    /// The fields of a body; `None` if it is neither a JSON object nor a form. An empty body has no fields.
    pub(super) fn in_body(head: &HeaderMap, text: &[u8], paths: &[FieldPath]) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::found([]));
        }
        let values = if is_form(head) { read_form(text, paths) } else { read_object(text, paths) }?;
        Some(Self::found(paths.iter().cloned().zip(values).filter_map(|(path, value)| Some((path, value?)))))
    }

    pub(super) fn unreadable(treatment: OnUnreadable) -> Self {
        match treatment {
            OnUnreadable::Skip => Self::found([]),
            other => Self { read: FieldsRead::Unreadable(other), bytes: None },
        }
    }

    /// The fields of this request, if it has come through a layer that reads them.
    pub fn of(request: RequestView<'_>) -> Option<&Self> {
        request.extensions.get()
    }

    /// The length of the body, if it is known: it was stated, or the body was read to its end.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Whether the body could be read, is empty, or [counts as empty](OnUnreadable::Skip).
    pub fn is_readable(&self) -> bool {
        matches!(self.read, FieldsRead::Found(_))
    }

    /// Whether a field is there, also as `null`.
    pub fn has(&self, field: &str) -> bool {
        self.value(field).is_some()
    }

    /// The text of a field, or its number or word as JSON writes it, a whole number in digits; `None` if it was not found, or is `null`, a list
    /// or an object.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.value(field)?.text.as_deref()
    }

    /// The number of a field, such as `300`, `300.0` or `3e2`; `None` if it was not found, or is not a whole number from 0.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.value(field)?.number
    }

    /// Whether the text of a field [meets](Self::text) a condition, or cannot be read and so may meet it: for limits, which should then
    /// apply.
    pub fn may_be(&self, field: &str, is_wanted: impl FnOnce(&str) -> bool) -> bool {
        match self.value(field) {
            Some(value) => value.text.as_deref().is_none_or(is_wanted),
            None => !self.is_readable(),
        }
    }

    /// The refusal of a request whose body cannot be read, if it is to be refused.
    pub(super) fn rejection(&self) -> Option<MissingKey> {
        match self.read {
            FieldsRead::Unreadable(OnUnreadable::Reject(status)) => Some(
                MissingKey::new(
                    "the body cannot be read: send a JSON object or a form, not compressed and not too long",
                )
                .rejecting(status),
            ),
            _ => None,
        }
    }

    fn value(&self, field: &str) -> Option<&FieldValue> {
        let FieldsRead::Found(fields) = &self.read else { return None };
        fields.iter().find(|(path, _)| path.is(field)).map(|(_, value)| value)
    }
}

impl fmt::Debug for RequestFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.read {
            // Clients write the values, which may be secrets.
            FieldsRead::Found(fields) => f.debug_set().entries(fields.iter().map(|(path, _)| path)).finish(),
            FieldsRead::Unreadable(treatment) => f.debug_tuple("Unreadable").field(treatment).finish(),
        }
    }
}

impl fmt::Display for OnUnreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match => f.write_str("match"),
            Self::Skip => f.write_str("skip"),
            Self::Reject(status) => f.write_str(status.as_str()),
        }
    }
}

impl FromStr for OnUnreadable {
    type Err = ConfigError;

    /// Reads `match`, `skip`, or a status from 400 to 599.
    ///
    /// # Errors
    /// [`Unreadable`](sluicegate_core::error::ConfigErrorKind::Unreadable) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "match" => return Ok(Self::Match),
            "skip" => return Ok(Self::Skip),
            _ => {}
        }
        let status = text.parse().ok().filter(|status: &StatusCode| (400..600).contains(&status.as_u16()));
        status.map(Self::Reject).ok_or_else(|| {
            unreadable(
                text,
                "does not say what happens to a request whose body cannot be read: use \"match\", \"skip\", or a status from 400 to 599, such as \"415\"",
            )
        })
    }
}
