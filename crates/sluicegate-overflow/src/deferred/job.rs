//! The request that is kept for later: [`Job`].

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Request};
use serde::{Deserialize, Serialize};
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::defer::DeferredTurn;

/// A request that is run later: method, path and query, the header fields that are [kept](crate::deferred::DeferralBuilder::keep_headers), and
/// the body.
#[non_exhaustive]
pub struct Job {
    /// The id, the same in each attempt: the system behind can use it to recognize a job that it has already done.
    pub id: String,
    /// The number of the attempt, from 1. Above 1, an earlier attempt may have had effects.
    pub attempt: u32,
    /// The request.
    pub request: Request<Bytes>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// A request and the turns that it takes, in the form that is encrypted.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    request: StoredRequest,
    pub(super) turns: Vec<StoredTurn>,
}

/// The part of a request that is kept.
#[derive(Serialize, Deserialize)]
struct StoredRequest {
    method: String,
    target: String,
    /// Values may have bytes that are no text.
    headers: Vec<(String, Vec<u8>)>,
    /// In base64.
    body: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredTurn {
    pub(super) policy: String,
    /// The encoded parts.
    key: Vec<u8>,
    pub(super) cost: u64,
}

/// The most bytes of method, path, and kept fields.
const LONGEST_HEAD: usize = 8 * 1024;

impl Stored {
    /// The kept part of a request; `None` if its head is too long.
    pub(super) fn of(request: &Request<Bytes>, kept: &[HeaderName], turns: &[DeferredTurn]) -> Option<Self> {
        let (method, target) = (request.method().as_str(), target(request.uri()));
        let mut length = method.len() + target.len();
        let mut headers = Vec::new();
        for name in kept {
            for value in request.headers().get_all(name) {
                length += name.as_str().len() + value.len();
                headers.push((name.as_str().to_owned(), value.as_bytes().to_vec()));
            }
        }
        let body = STANDARD.encode(request.body());
        let request = StoredRequest { method: method.to_owned(), target: target.to_owned(), headers, body };
        let turns = turns.iter().map(|turn| StoredTurn {
            policy: turn.limiter.policy().name().to_owned(),
            key: turn.key.as_bytes().to_vec(),
            cost: turn.cost,
        });
        (length <= LONGEST_HEAD).then(|| Self { request, turns: turns.collect() })
    }

    /// The bytes that are sealed.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers are JSON")
    }

    /// The encoded value; `None` if the bytes are something else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The request; `None` if it is invalid.
    pub(super) fn request(&self) -> Option<Request<Bytes>> {
        let StoredRequest { method, target, headers, body } = &self.request;
        let mut request = Request::new(Bytes::from(STANDARD.decode(body).ok()?));
        *request.method_mut() = method.parse().ok()?;
        *request.uri_mut() = target.parse().ok()?;
        let fields = headers.iter().map(|(name, value)| {
            Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value).ok()?))
        });
        let mut map = HeaderMap::new();
        for field in fields {
            let (name, value) = field?;
            map.append(name, value);
        }
        *request.headers_mut() = map;
        Some(request)
    }
}

impl StoredTurn {
    pub(super) fn key(&self) -> Key {
        Key::encoded(KeyKind::Secret, &self.key)
    }
}

/// The path with the query.
pub(super) fn target(uri: &http::Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}
