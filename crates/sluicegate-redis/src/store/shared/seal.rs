//! Seals the shared bytes, because keys that clients chose may be among them: [`SharedSeal`].

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

/// Bytes of a nonce of XChaCha20.
const NONCE: usize = 24;

/// XChaCha20-Poly1305, keyed with the fleet's secret.
///
/// The nonce is a keyed hash of the bytes, as in RFC 5297: equal bytes are sealed alike, so that the script can compare them.
pub(super) struct SharedSeal {
    cipher: XChaCha20Poly1305,
    nonces: [u8; 32],
}

impl SharedSeal {
    pub(super) fn new(secret: &[u8]) -> Self {
        let key = blake3::derive_key("sluicegate 2026-11-26 shared bytes: encryption", secret);
        let nonces = blake3::derive_key("sluicegate 2026-11-26 shared bytes: nonces", secret);
        Self { cipher: XChaCha20Poly1305::new(&Key::from(key)), nonces }
    }

    /// The form in which the bytes are stored. Empty bytes stay empty.
    pub(super) fn seal(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&blake3::keyed_hash(&self.nonces, bytes).as_bytes()[..NONCE]);
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), bytes);
        [&nonce[..], &sealed.expect("no value of Redis is as long as 256 GiB")].concat()
    }

    /// The bytes; empty if they were not sealed with this secret.
    pub(super) fn open(&self, sealed: &[u8]) -> Vec<u8> {
        let opened = sealed.split_first_chunk::<NONCE>().and_then(|(nonce, sealed)| {
            let nonce = XNonce::from(*nonce);
            self.cipher.decrypt(&nonce, sealed).ok()
        });
        opened.unwrap_or_default()
    }
}

impl fmt::Debug for SharedSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSeal(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_sealed_alike_and_opened_with_their_secret_only() {
        let (seal, other) = (SharedSeal::new(b"of the fleet"), SharedSeal::new(b""));
        let sealed = seal.seal(b"1\tlogin\tada");
        assert_eq!(sealed, SharedSeal::new(b"of the fleet").seal(b"1\tlogin\tada"));
        assert!(!sealed.windows(5).any(|part| part == b"login"));
        assert_eq!((seal.open(&sealed), other.open(&sealed)), (b"1\tlogin\tada".to_vec(), Vec::new()));
        assert_eq!((seal.seal(b""), seal.open(b""), seal.open(b"garbage")), (vec![], vec![], vec![]));
        let mut changed = sealed;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(seal.open(&changed), Vec::<u8>::new());
    }
}
