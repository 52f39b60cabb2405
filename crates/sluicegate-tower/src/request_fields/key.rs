//! A field of a request's JSON or form as its key: [`FieldKey`].

use std::borrow::Cow;

use sluicegate_core::key::KeyKind;
use sluicegate_core::{ConfigError, Key};

use crate::json::FieldPath;
use crate::key::text::bounded;
use crate::key::{Extraction, KeyExtractor, KeyForm, RequestView};
use crate::request_fields::RequestFields;

/// One bucket per value of a field of the request's JSON or form, such as the `model` or the `user`. It needs a
/// [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) around the limits that reads this field.
///
/// `Victim` and `victim ` are two buckets. If the application takes them for one user, so does a [`folded`](Self::folded) key.
///
/// Requests whose body, or whose field, cannot be read share a bucket, whatever the limit does without a key.
///
/// # When not to use it
/// Alone against clients: each client may write another value, and then has another bucket. Use it in a tuple with the key of the
/// client, if the values are few or verified, or with a limit for all values.
#[derive(Clone, Debug)]
pub struct FieldKey {
    field: String,
    is_folded: bool,
}

impl FieldKey {
    /// The field with this name; nested names are separated by dots.
    ///
    /// # Errors
    /// When `field` is not a valid path.
    pub fn new(field: &str) -> Result<Self, ConfigError> {
        FieldPath::parse(field).map(|path| Self { field: path.to_string(), is_folded: false })
    }

    /// One bucket for values that differ only in upper and lower case and in space around them: for names and e-mail addresses of a
    /// login, which a client can write in many ways.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Full;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::request_fields::{FieldKey, RequestFieldsLayer};
    /// use sluicegate_tower::{Limit, RateLimitLayer};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
    /// let service = ServiceBuilder::new()
    ///     .layer(RequestFieldsLayer::new(["user"])?)
    ///     .layer(RateLimitLayer::new(Limit::new(login.clone()).key(FieldKey::new("user")?.folded())))
    ///     .service_fn(|_: Request<_>| async { Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default())) });
    /// for name in ["victim", "Victim", "victim "] {
    ///     let body = Full::new(Bytes::from(format!(r#"{{"user": "{name}"}}"#)));
    ///     service.clone().oneshot(Request::new(body)).await?;
    /// }
    /// assert_eq!(login.peek("victim").await?.remaining(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }

    /// The value that is the key of this request, if the request has the field.
    pub fn value<'r>(&self, request: RequestView<'r>) -> Option<Cow<'r, str>> {
        let text = RequestFields::of(request)?.text(&self.field)?;
        let is_blank = text.trim().is_empty();
        let value = if self.is_folded { Cow::Owned(text.trim().to_lowercase()) } else { Cow::Borrowed(text) };
        (!is_blank).then_some(value)
    }
}

impl KeyExtractor for FieldKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let fields = RequestFields::of(request);
        if let Some(rejection) = fields.and_then(RequestFields::rejection) {
            return rejection.into();
        }
        if let Some(value) = self.value(request) {
            return Extraction::found(bounded(value.as_bytes()));
        }
        match fields {
            Some(fields) if fields.text(&self.field).is_none() && fields.may_be(&self.field, |_| true) => {
                Extraction::found(Key::shared().and("unreadable"))
            }
            _ => Extraction::missing(format!("the request has no field {}", self.field)),
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
