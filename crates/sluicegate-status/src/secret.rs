//! The secret that the instances of a service share: [`Secret`], which signs forms and seals keys.
//!
//! # Tokens
//! `until.signature`, both in hexadecimal digits: the second at which the token ends, and a keyed hash of it and of the operator's name. No
//! token is remembered, so any instance with the secret accepts it, and it can be sent more than once: it proves that a form came from a
//! page that this operator has loaded in the last hour.
//!
//! # Sealed keys
//! A button of the page acts on a key that the page may not show. Its form carries the key as a word that only the secret opens, with the
//! policy that it belongs to, so that it cannot be moved to another one. A key always has the same word (SIV: a stream cipher whose start
//! is a hash of the text), because that needs no nonce that instances would have to agree on. So words reveal only whether two of them stand for
//! one key.
//!
//! The results of forms are sealed in the same way. Each use has a key of its own, derived from the secret: a token reveals nothing about a
//! sealed key.

use std::fmt::Write;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::KeyKind;
use sluicegate_core::{ConfigError, Key};

/// The time for which a form can be sent after its page was loaded.
const FORM_LASTS_SECONDS: u64 = 3_600;
const SHORTEST: usize = 32;
const IV: usize = 16;

/// Signs forms, so that no foreign page can send one, and seals keys, so that a page can name a key without showing it.
pub(crate) struct Secret {
    forms: [u8; 32],
    keys: TextSeal,
    results: TextSeal,
}

/// Hides texts: SIV, a stream that begins with a hash of the hidden text.
struct TextSeal {
    ivs: [u8; 32],
    streams: [u8; 32],
}

impl Secret {
    /// Keys for each use, none of which reveals another.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < SHORTEST {
            let problem = format!(
                "a secret of {} bytes can be guessed: use at least {SHORTEST}, at random, the same for all instances",
                secret.len()
            );
            return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
        }
        Ok(Self {
            forms: blake3::derive_key("sluicegate-status 2026-11-22 tokens of forms", secret),
            keys: TextSeal {
                ivs: blake3::derive_key("sluicegate-status 2026-11-22 sealed keys, synthetic iv", secret),
                streams: blake3::derive_key("sluicegate-status 2026-11-22 sealed keys, stream", secret),
            },
            results: TextSeal {
                ivs: blake3::derive_key(
                    "sluicegate-status 2026-11-24 results of forms, synthetic iv",
                    secret,
                ),
                streams: blake3::derive_key("sluicegate-status 2026-11-24 results of forms, stream", secret),
            },
        })
    }

    /// A token for the forms of a page that is loaded now by this operator.
    pub(crate) fn token(&self, now_seconds: u64, operator: &str) -> String {
        let until = now_seconds.saturating_add(FORM_LASTS_SECONDS);
        format!("{until:x}.{}", self.signature(until, operator).to_hex())
    }

    /// Whether a token was made for this operator, and is still valid.
    pub(crate) fn admits(&self, now_seconds: u64, operator: &str, token: &str) -> bool {
        let Some((until, signature)) = token.split_once('.') else { return false };
        let Ok(until) = u64::from_str_radix(until, 16) else { return false };
        let Ok(signature) = blake3::Hash::from_hex(signature) else { return false };
        // A token from the future was made by an unknown clock. Hashes are compared in constant time.
        let lasts = now_seconds < until && until - now_seconds <= 2 * FORM_LASTS_SECONDS;
        lasts && signature == self.signature(until, operator)
    }

    fn signature(&self, until: u64, operator: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.forms, &[&until.to_le_bytes(), operator.as_bytes()].concat())
    }

    /// Seals the result of a form as a word that only holders of the secret can read.
    pub(crate) fn seal_result(&self, text: Vec<u8>) -> String {
        self.results.seal(text)
    }

    /// The result that a word stands for, if it was sealed with this secret.
    pub(crate) fn unseal_result(&self, word: &str) -> Option<Vec<u8>> {
        self.results.unseal(word)
    }

    /// Seals the key of a policy as a word that only holders of the secret can read. A key always has the same word.
    pub(crate) fn seal(&self, policy: &str, key: &Key) -> String {
        let kind = match key.kind() {
            KeyKind::Name => b'n',
            KeyKind::Address => b'a',
            _ => b's',
        };
        self.keys.seal([policy.as_bytes(), &[0, kind], key.as_bytes()].concat())
    }

    /// The policy and the key that a word stands for, if it was sealed with this secret.
    pub(crate) fn unseal(&self, word: &str) -> Option<(String, Key)> {
        let text = self.keys.unseal(word)?;
        let mut parts = text.splitn(2, |byte| *byte == 0);
        let (policy, (kind, key)) = (parts.next()?, parts.next()?.split_first()?);
        let kind = match kind {
            b'n' => KeyKind::Name,
            b'a' => KeyKind::Address,
            _ => KeyKind::Secret,
        };
        Some((String::from_utf8(policy.to_vec()).ok()?, Key::encoded(kind, key)))
    }
}

impl TextSeal {
    /// Seals a text as hexadecimal digits.
    fn seal(&self, mut text: Vec<u8>) -> String {
        let iv = blake3::keyed_hash(&self.ivs, &text);
        let iv = &iv.as_bytes()[..IV];
        self.stream(iv, &mut text);
        iv.iter().chain(&text).fold(String::new(), |mut word, byte| {
            // Writing to a string does not fail.
            _ = write!(word, "{byte:02x}");
            word
        })
    }

    fn unseal(&self, word: &str) -> Option<Vec<u8>> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let pairs = word.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        });
        let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
        let (iv, sealed) = bytes.split_at_checked(IV)?;
        let mut text = sealed.to_vec();
        self.stream(iv, &mut text);
        (blake3::keyed_hash(&self.ivs, &text).as_bytes()[..IV] == *iv).then_some(text)
    }

    fn stream(&self, iv: &[u8], text: &mut [u8]) {
        let mut stream = vec![0; text.len()];
        blake3::Hasher::new_keyed(&self.streams).update(iv).finalize_xof().fill(&mut stream);
        text.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; 32]).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_operator_for_an_hour_on_every_instance() {
        let token = secret(1).token(1_000, "ada");
        assert!(secret(1).admits(1_000, "ada", &token) && secret(1).admits(4_599, "ada", &token));
        assert!(!secret(1).admits(4_600, "ada", &token), "an hour later");
        assert!(!secret(1).admits(1_000, "bob", &token), "somebody else's");
        assert!(!secret(2).admits(1_000, "ada", &token), "another secret's");
        for forged in ["", ".", "ffff.", &token[1..], &token.replace('.', "0."), &token.to_uppercase()[..20]]
        {
            assert!(!secret(1).admits(1_000, "ada", forged), "{forged}");
        }
    }

    #[test]
    fn a_sealed_key_is_read_by_its_secret_only_and_shows_nothing() {
        let word = secret(1).seal("login", &Key::from("sk_live_51H"));
        assert_eq!(secret(1).unseal(&word), Some(("login".to_owned(), Key::from("sk_live_51H"))));
        assert!(!word.contains("736b5f6c697665"), "the bytes of the key are not in {word}");
        assert_eq!((secret(2).unseal(&word), secret(1).unseal_result(&word)), (None, None));
        for at in 0..word.len() {
            let other = if &word[at..=at] == "0" { "1" } else { "0" };
            let forged = format!("{}{other}{}", &word[..at], &word[at + 1..]);
            assert_eq!(secret(1).unseal(&forged), None, "digit {at}");
        }
        for forged in ["", "0", "zz", &word[..30], &word[2..], "ä"] {
            assert_eq!(secret(1).unseal(forged), None, "{forged}");
        }
        let address = Key::from(std::net::Ipv4Addr::LOCALHOST);
        for key in [address, Key::from("").of_kind(KeyKind::Name), Key::from((1, "a\0b"))] {
            let (_, unsealed) = secret(1).unseal(&secret(1).seal("login", &key)).unwrap();
            assert_eq!((&unsealed, unsealed.kind()), (&key, key.kind()));
        }
    }

    #[test]
    fn a_short_secret_is_refused_and_not_shown() {
        let error = Secret::new(b"hunter2").err().unwrap().to_string();
        assert!(error.starts_with("a secret of 7 bytes") && !error.contains("hunter2"), "{error}");
    }
}
