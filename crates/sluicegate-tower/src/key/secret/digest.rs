//! Keys of secrets, and the header field that carries one: [`Digest`].

use std::collections::HashSet;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName};
use sluicegate_core::Key;

use crate::key::text::{MAX_LENGTH, bounded};
use crate::key::{KeyForm, MissingKey, RequestView};

/// The kind that API keys and bearer tokens share: a secret has the same bucket in both places.
pub(super) const TOKEN: &str = "token";

/// Makes keys from secrets: 128 bits, from which the secret cannot be recovered.
///
/// Every instance of a service makes the same keys, so that the instances can share a store.
#[derive(Clone)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// A different digest for every kind and name of a secret, so that no two collide.
    pub(super) fn of(kind: &str, name: &str) -> Self {
        let material = [kind.as_bytes(), b"\0", name.as_bytes()].concat();
        Self(blake3::derive_key("sluicegate 2026-11-21 credentials as keys", &material))
    }

    /// The form in which operators write an API key or a token.
    pub(super) fn form(&self) -> KeyForm {
        let this = self.clone();
        KeyForm::secret("an API key or token", move |text| this.key(text.trim().as_bytes()))
    }

    pub(super) fn key(&self, secret: &[u8]) -> Key {
        if secret.len() > MAX_LENGTH {
            return bounded(secret);
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&blake3::keyed_hash(&self.0, secret).as_bytes()[..16]);
        Key::of_digest(digest)
    }
}

/// The value of a header that must not have two different values; `None` if it is blank.
///
/// Another reader of such a request may choose the other value, so one client would have two buckets, or spend from
/// another client's.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, MissingKey> {
    let mut lines = headers.get_all(name).iter().map(|line| line.as_bytes().trim_ascii());
    let Some(first) = lines.next() else { return Ok(None) };
    if lines.any(|line| line != first) {
        let reason = format!("the header {name} is there with different values");
        return Err(MissingKey::new(reason).rejecting(StatusCode::BAD_REQUEST));
    }
    Ok(Some(first).filter(|value| !value.is_empty()))
}

/// Whether a request sends one of these secrets, by its key.
pub(super) fn one_of(
    find: impl Fn(RequestView<'_>) -> Result<Key, MissingKey> + Clone + Send + Sync + 'static,
    keys: HashSet<Key>,
) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
    move |request| find(request).is_ok_and(|key| keys.contains(&key))
}
