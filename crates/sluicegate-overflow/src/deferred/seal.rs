//! The form in which a queue holds a job: ciphertext and digests.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;

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
        Ok(Self { cipher: XChaCha20Poly1305::new(&Key::from(key)), digests })
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
