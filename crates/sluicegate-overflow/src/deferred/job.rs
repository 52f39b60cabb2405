//! The request that is kept for later ([`Job`]), and the form in which a queue holds it: ciphertext and digests ([`JobSeals`]).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use http::header::HeaderName;
use http::{HeaderValue, Request};
use serde::{Deserialize, Serialize};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::KeyKind;
use sluicegate_core::{ConfigError, Key};
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

/// The kept part of a request and the turns that it takes, in the form that is encrypted.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    method: String,
    target: String,
    /// Values may have bytes that are no text.
    headers: Vec<(String, Vec<u8>)>,
    /// In base64.
    body: String,
    pub(super) turns: Vec<StoredTurn>,
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
        let turns = turns.iter().map(|turn| StoredTurn {
            policy: turn.limiter.policy().name().to_owned(),
            key: turn.key.as_bytes().to_vec(),
            cost: turn.cost,
        });
        let (method, target, turns) = (method.to_owned(), target.to_owned(), turns.collect());
        (length <= LONGEST_HEAD).then_some(Self { method, target, headers, body, turns })
    }

    /// The bytes that are sealed.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers are JSON")
    }

    /// The request; `None` if it is invalid.
    pub(super) fn request(&self) -> Option<Request<Bytes>> {
        let mut request = Request::new(Bytes::from(STANDARD.decode(&self.body).ok()?));
        *request.method_mut() = self.method.parse().ok()?;
        *request.uri_mut() = self.target.parse().ok()?;
        for (name, value) in &self.headers {
            let (name, value) = (name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value).ok()?);
            request.headers_mut().append(name, value);
        }
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

/// Bytes of a nonce of XChaCha20, which may be drawn at random for each message.
const NONCE: usize = 24;

/// The secrets of an application: the first one encrypts jobs, and all of them decrypt.
pub(super) struct JobSeals {
    own: JobSeal,
    other: Option<JobSeal>,
}

/// The ciphers of one secret: XChaCha20-Poly1305 with a random nonce, bound to the job that it belongs to, and keyed digests. Lengths and times
/// are not hidden.
pub(super) struct JobSeal {
    cipher: XChaCha20Poly1305,
    digests: [u8; 32],
}

impl JobSeals {
    pub(super) fn new(own: &[u8], other: Option<&[u8]>) -> Result<Self, ConfigError> {
        Ok(Self { own: JobSeal::new(own)?, other: other.map(JobSeal::new).transpose()? })
    }

    pub(super) fn own(&self) -> &JobSeal {
        &self.own
    }

    /// All secrets, the encrypting one first.
    pub(super) fn all(&self) -> impl Iterator<Item = &JobSeal> {
        [&self.own].into_iter().chain(&self.other)
    }

    /// The plain text; `None` if it was not encrypted with these secrets and for this purpose.
    pub(super) fn open(&self, purpose: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        self.all().find_map(|seal| seal.open(purpose, sealed))
    }
}

impl JobSeal {
    fn new(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < 16 {
            let problem = format!("a secret of {} bytes for deferred jobs: use at least 16", secret.len());
            return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
        }
        let key = blake3::derive_key("sluicegate 2026-11-22 deferred jobs: encryption", secret);
        let digests = blake3::derive_key("sluicegate 2026-11-22 deferred jobs: digests", secret);
        Ok(Self { cipher: XChaCha20Poly1305::new(&chacha20poly1305::Key::from(key)), digests })
    }

    /// Encrypts a text for storage. It can be opened only for the same purpose.
    pub(super) fn seal(&self, purpose: &str, plain: &[u8]) -> Vec<u8> {
        let nonce = random::<NONCE>();
        let payload = Payload { msg: plain, aad: purpose.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        [&nonce[..], &sealed.expect("no message is as long as 256 GiB")].concat()
    }

    fn open(&self, purpose: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
        self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: purpose.as_bytes() }).ok()
    }

    /// 128 bits that identify these parts.
    pub(super) fn digest(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.digests);
        for part in [purpose.as_bytes()].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        digest
    }
}

impl fmt::Debug for JobSeals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSeals").field("has_other", &self.other.is_some()).finish_non_exhaustive()
    }
}

/// Bytes that cannot be guessed.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
