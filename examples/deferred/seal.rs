//! What stands in Redis of a job: ciphertext and digests, or what a client sent, if the application says so.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use sluicegate::ConfigError;
use sluicegate::error::ConfigErrorKind;

/// Bytes of a nonce of XChaCha20, which may be drawn at random for each message.
const NONCE: usize = 24;

/// Encrypts jobs and results, and digests what has to be compared.
///
/// With [`with_secret`](Self::with_secret), nothing that a client sent is readable in Redis: XChaCha20-Poly1305 with a random nonce,
/// bound to the job that it belongs to, and keyed digests. Lengths and times are not hidden.
pub(crate) struct Seal {
    own: By,
    other: Option<By>,
}

/// One secret.
struct By {
    cipher: Option<XChaCha20Poly1305>,
    digests: [u8; 32],
}

impl Seal {
    /// By a secret of the application, which all of its instances have: at least 16 bytes, such as 32 random ones.
    ///
    /// # Errors
    /// When it is shorter.
    pub(crate) fn with_secret(secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        Ok(Self { own: By::secret(secret.as_ref())?, other: None })
    }

    /// The same, which also opens and recognises what is sealed by another secret: the one before, or the one to come. For a change of
    /// secrets give all instances the new one here, then let the two change places, and leave the old one away when all that it has
    /// sealed is over.
    ///
    /// # Errors
    /// When it is shorter than 16 bytes.
    pub(crate) fn and_opens(mut self, secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.other = Some(By::secret(secret.as_ref())?);
        Ok(self)
    }

    /// Not at all: everybody who can read that Redis reads bodies, headers and results.
    pub(crate) fn in_clear() -> Self {
        Self { own: By { cipher: None, digests: digests_by(b"") }, other: None }
    }

    /// The form in which this is stored. It can be opened for the same purpose only.
    pub(crate) fn seal(&self, purpose: &str, plain: &[u8]) -> Vec<u8> {
        let Some(cipher) = &self.own.cipher else { return plain.to_vec() };
        let nonce = random::<NONCE>();
        let payload = Payload { msg: plain, aad: purpose.as_bytes() };
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        [&nonce[..], &sealed.expect("no message is as long as 256 GiB")].concat()
    }

    /// What was sealed; none if it was not sealed by these secrets, or for another purpose.
    pub(crate) fn open(&self, purpose: &str, stored: &[u8]) -> Option<Vec<u8>> {
        // What is not encrypted can be taken for anything, so it comes last.
        let (clear, sealed): (Vec<_>, Vec<_>) = self.all().partition(|by| by.cipher.is_none());
        sealed.into_iter().chain(clear).find_map(|by| by.open(purpose, stored))
    }

    /// 128 bits that stand for these parts, and for no others, by the own secret.
    pub(crate) fn digest(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 16] {
        self.own.digest(purpose, parts)
    }

    /// The same by the other secret; by the own one if there is no other.
    pub(crate) fn other_digest(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 16] {
        self.other.as_ref().unwrap_or(&self.own).digest(purpose, parts)
    }

    fn all(&self) -> impl Iterator<Item = &By> {
        [&self.own].into_iter().chain(&self.other)
    }
}

impl By {
    fn secret(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < 16 {
            let problem = format!("a secret of {} bytes: use at least 16", secret.len());
            return Err(ConfigError::new(ConfigErrorKind::Store, problem));
        }
        let key = blake3::derive_key("sluicegate 2026-11-22 deferred jobs: encryption", secret);
        Ok(Self { cipher: Some(XChaCha20Poly1305::new(&Key::from(key))), digests: digests_by(secret) })
    }

    fn open(&self, purpose: &str, stored: &[u8]) -> Option<Vec<u8>> {
        let Some(cipher) = &self.cipher else { return Some(stored.to_vec()) };
        let (nonce, sealed) = stored.split_first_chunk::<NONCE>()?;
        cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: purpose.as_bytes() }).ok()
    }

    fn digest(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 16] {
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

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("encrypts", &self.own.cipher.is_some()).finish_non_exhaustive()
    }
}

fn digests_by(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("sluicegate 2026-11-22 deferred jobs: digests", secret)
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// Two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
