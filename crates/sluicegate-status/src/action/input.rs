//! Input from a client: a form of the page, or JSON. Both are read into one [`Input`].
//!
//! A form becomes the object that a program would have sent: `request.peer=192.0.2.1` is `{"request": {"peer": "192.0.2.1"}}`, and a field
//! that was left empty is absent. So there is one set of names, and one reader that refuses unknown fields: a misspelled field
//! would otherwise be ignored and change the meaning of the action.
//!
//! Unreadable input is not shown again, because it may be a key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use http_body::Body;
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluicegate_core::StoreError;
use sluicegate_core::policy::TimeSpan;
use sluicegate_tower::room::RoomError;

/// Longer than any form of the page: the word of a key has two digits for each of its bytes, and extractors distinguish up to three parts of
/// 8 KiB.
const LONGEST: usize = 65_536;

/// An action, and the key or policy that it is for. Fields that a form leaves empty are absent.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Input {
    /// The action. If the path names it, it is absent here.
    #[serde(rename = "do")]
    pub(crate) verb: Option<String>,
    /// The token of the page that the form was on. Programs send it in a header.
    pub(crate) token: Option<String>,
    /// The name of the policy that is changed, or whose key is meant.
    pub(crate) policy: Option<String>,
    /// The text of the key as it was typed: it may be a secret.
    pub(super) key: Option<String>,
    #[serde(rename = "as")]
    pub(super) key_as: KeyAs,
    /// The issuer of the token, if the key is its subject.
    pub(super) issuer: Option<String>,
    /// The word for a key that the page has named without showing it.
    #[serde(rename = "ref")]
    pub(super) reference: Option<String>,
    /// A request whose key the extractors find.
    pub(super) request: Option<Pretended>,
    /// The new quotas of a policy, with commas between them.
    pub(super) quota: Option<String>,
    /// `new` if the new quotas of a policy are only for new keys, otherwise `all`.
    pub(super) keys: Option<String>,
    /// `enforce`, `shadow` or `off`; for a room `metered`, `paused` or `open`.
    pub(super) mode: Option<String>,
    /// The name of the room that is changed.
    pub(crate) room: Option<String>,
    /// The new rate of a room.
    pub(super) rate: Option<String>,
    /// The rate and the mode of a room as the operator has seen them.
    pub(super) seen: Option<String>,
    /// Confirms the action.
    pub(super) confirm: Option<String>,
    /// The end of the change, in RFC 3339.
    pub(super) until: Option<String>,
    /// The length of the change or the suspension.
    #[serde(rename = "for")]
    span: Option<String>,
    version: Option<Version>,
}

/// The version of an override: a number, and in forms its digits.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Version {
    Number(u64),
    Digits(String),
}

/// The meaning of the text of a key.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyAs {
    /// The meaning that the limits of its policy give it; otherwise an address if it reads as one, or else text.
    #[default]
    Any,
    /// Text, even if it reads as something else.
    Text,
    /// A whole number, which is another key than its digits.
    Number,
    /// An API key, a token or a cookie; its digest is the key.
    Secret,
    /// The subject of a token; its digest, with that of its issuer, is the key.
    Subject,
}

/// A hypothetical request, for the extractors.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pretended {
    /// The name of the limits that it meets.
    pub(super) limits: Option<String>,
    /// `GET`, unless it is set.
    pub(super) method: Option<String>,
    /// `/`, unless it is set.
    pub(super) path: Option<String>,
    /// The address that it comes from. Without one it has no peer, as behind a server that does not pass on the peer.
    pub(super) peer: Option<String>,
    /// Header fields, in lines; a field may occur more than once.
    pub(super) headers: HeaderLines,
}

/// Header fields: one in a line, or by name.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum HeaderLines {
    Lines(String),
    ByName(BTreeMap<String, String>),
}

impl Default for HeaderLines {
    fn default() -> Self {
        Self::Lines(String::new())
    }
}

impl HeaderLines {
    /// The name and the value of each field, unchanged. `None` if a line has no colon.
    pub(super) fn fields(&self) -> Option<Vec<(&str, &str)>> {
        match self {
            Self::Lines(lines) => {
                let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
                lines
                    .map(|line| line.split_once(':').map(|(name, value)| (name.trim(), value.trim())))
                    .collect()
            }
            Self::ByName(fields) => Some(fields.iter().map(|(name, value)| (&**name, &**value)).collect()),
        }
    }
}

/// The format of a client's request and of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// A form, answered by the page.
    Page,
    /// JSON, answered by JSON.
    Json,
}

impl Face {
    /// The form that the content type names; `None` for other types.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "application/x-www-form-urlencoded" => Some(Self::Page),
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }
}

impl Input {
    /// Reads a whole body.
    ///
    /// # Errors
    /// [`ActionFault`] when it is too long or cannot be read.
    pub(crate) async fn read<B: Body>(face: Face, body: B) -> Result<Self, ActionFault> {
        let bytes = collect(body).await?;
        let value = match face {
            Face::Json => serde_json::from_slice(&bytes).ok(),
            Face::Page => form(&bytes),
        };
        value.and_then(|value| serde_json::from_value(value).ok()).ok_or_else(unreadable)
    }

    /// The part of the input that names a key.
    pub(crate) fn sought(self) -> Self {
        let Self { policy, key, key_as, issuer, reference, request, .. } = self;
        Self { policy, key, key_as, issuer, reference, request, ..Self::default() }
    }

    /// The length of the change, if the input has one.
    pub(super) fn span(&self) -> Result<Option<Duration>, ActionFault> {
        let span = self.span.as_deref().map(str::parse::<TimeSpan>).transpose();
        span.map(|span| span.map(Duration::from)).map_err(|error| ActionFault::bad(error.to_string()))
    }

    /// The version of the override that is replaced or withdrawn.
    pub(super) fn version(&self) -> Result<Option<u64>, ActionFault> {
        match &self.version {
            None => Ok(None),
            Some(Version::Number(version)) => Ok(Some(*version)),
            Some(Version::Digits(digits)) => {
                digits.parse().map(Some).map_err(|_| ActionFault::bad("the version is not a whole number"))
            }
        }
    }
}

async fn collect<B: Body>(body: B) -> Result<Vec<u8>, ActionFault> {
    let mut body = pin!(body);
    let mut all = Vec::new();
    loop {
        let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else { return Ok(all) };
        let Ok(mut data) = frame.map_err(|_| unreadable())?.into_data() else { continue };
        if all.len() + data.remaining() > LONGEST {
            let problem = format!("the body is longer than {LONGEST} bytes");
            return Err(ActionFault::new(StatusCode::PAYLOAD_TOO_LARGE, problem));
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            let length = chunk.len();
            all.extend_from_slice(chunk);
            data.advance(length);
        }
    }
}

/// Reports a body that is not of its type, has an unknown field, or was cut off on its way. Nothing of it is shown again.
fn unreadable() -> ActionFault {
    ActionFault::bad(
        "the body cannot be read: send the page's own form, or JSON such as {\"policy\": \"login\", \"key\": \"ada\"}",
    )
}

/// Reads a form as an object: `request.peer=..` is `{"request": {"peer": ..}}`.
fn form(bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    for pair in bytes.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let (name, value) = (decode(parts.next()?)?, decode(parts.next()?)?);
        let (object, name) = match name.split_once('.') {
            Some((outer, inner)) => {
                let outer = object.entry(outer).or_insert_with(|| Map::new().into());
                (outer.as_object_mut()?, inner.to_owned())
            }
            None => (&mut object, name),
        };
        if !value.is_empty() && object.insert(name, value.into()).is_some() {
            return None;
        }
    }
    Some(object.into())
}

/// Decodes text as forms encode it.
fn decode(encoded: &[u8]) -> Option<String> {
    let is_whole =
        |escape: &[u8]| matches!(escape, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    if !encoded.split(|byte| *byte == b'%').skip(1).all(is_whole) {
        return None;
    }
    let spaced: Vec<u8> = encoded.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

// The reason why something was not done: [`ActionFault`].
//
// It has a status and a sentence. The sentence is for the operator who sees it on the page, and says what to do.

/// The reason why nothing was done. It names policies and fields, and shows no key.
#[derive(Debug)]
pub(crate) struct ActionFault {
    pub(crate) status: StatusCode,
    problem: String,
}

impl ActionFault {
    pub(crate) fn new(status: StatusCode, problem: impl Into<String>) -> Self {
        Self { status, problem: problem.into() }
    }

    pub(super) fn bad(problem: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, problem)
    }

    pub(super) fn unknown(policy: &str) -> Self {
        Self::bad(format!("no policy named {policy:?} is open here"))
    }
}

impl From<StoreError> for ActionFault {
    fn from(error: StoreError) -> Self {
        let is_outage = error.may_succeed_later();
        let status = if is_outage { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_REQUEST };
        Self::new(status, error.to_string())
    }
}

impl From<RoomError> for ActionFault {
    fn from(error: RoomError) -> Self {
        match error {
            RoomError::Store(error) => error.into(),
            error => Self::bad(error.to_string()),
        }
    }
}

impl fmt::Display for ActionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(face: Face, body: &str) -> Result<Input, ActionFault> {
        Input::read(face, body.to_owned()).await
    }

    #[tokio::test]
    async fn a_form_and_json_are_read_as_the_same() {
        let form = "do=lookup&policy=&key=&request.limits=api&request.peer=203.0.113.9&request.headers=x-api-key%3A+k%2B1%0D%0Aa:b";
        let json = r#"{"do":"lookup","request":{"limits":"api","peer":"203.0.113.9","headers":{"x-api-key":"k+1","a":"b"}}}"#;
        for (face, body) in [(Face::Page, form), (Face::Json, json)] {
            let input = read(face, body).await.unwrap();
            let request = input.request.unwrap();
            assert_eq!((input.verb.as_deref(), input.key), (Some("lookup"), None));
            assert_eq!(
                (request.limits.as_deref(), request.peer.as_deref()),
                (Some("api"), Some("203.0.113.9"))
            );
            let mut fields = request.headers.fields().unwrap();
            fields.sort_unstable();
            assert_eq!(fields, [("a", "b"), ("x-api-key", "k+1")]);
        }
    }

    #[tokio::test]
    async fn a_body_that_cannot_be_read_is_not_echoed() {
        for (face, body) in [
            (Face::Json, "{\"key\": 7}"),
            (Face::Json, "sk_live"),
            (Face::Json, "{\"sk_live\": \"\"}"),
            (Face::Json, "{\"as\": \"sk_live\"}"),
            (Face::Page, "sk_live"),
            (Face::Page, "key=%zz"),
            (Face::Page, "key=%ff"),
            (Face::Page, "key=a&key=b"),
            (Face::Page, "key=a&key.b=c"),
        ] {
            let error = read(face, body).await.err().unwrap();
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{body}");
            assert!(!error.to_string().contains("sk_live"));
        }
        let long = format!("key={}", "x".repeat(LONGEST));
        let error = read(Face::Page, &long).await.err().unwrap();
        assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
