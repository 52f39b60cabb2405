//! Verifies tokens: [`TokenVerifier`].
//!
//! Keys, tiers and quotas of one request may each need claims of its token, one after another on one thread. So a thread remembers the
//! last token that it verified, valid or not, by its hash.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{DecodingKey, Validation, decode};

use super::jwt::Claims;

/// How tokens are verified.
#[derive(Clone)]
pub(super) struct TokenVerifier {
    pub(super) key: DecodingKey,
    pub(super) validation: Validation,
}

/// The result for one token.
struct Verified {
    by: Weak<TokenVerifier>,
    token: blake3::Hash,
    /// Tokens begin and end with a second, so that the result is the same within one.
    second: u64,
    claims: Option<Claims>,
}

thread_local! {
    static LAST: RefCell<Option<Verified>> = const { RefCell::new(None) };
}

impl TokenVerifier {
    /// The claims of a token; `None` if it is not valid.
    pub(super) fn verify(self: &Arc<Self>, token: &str) -> Option<Claims> {
        let (hash, second) = (blake3::hash(token.as_bytes()), now());
        LAST.with_borrow_mut(|last| match last {
            Some(last) if last.is_of(self, hash, second) => last.claims.clone(),
            _ => {
                let claims = self.verify_anew(token);
                *last =
                    Some(Verified { by: Arc::downgrade(self), token: hash, second, claims: claims.clone() });
                claims
            }
        })
    }

    fn verify_anew(&self, token: &str) -> Option<Claims> {
        let token = decode(token, &self.key, &self.validation).ok()?;
        // RFC 7515, section 4.1.11: a token with `crit` extensions that are not understood is invalid.
        token.header.crit.is_none().then(|| Claims::new(token.claims))
    }
}

impl Verified {
    fn is_of(&self, by: &Arc<TokenVerifier>, token: blake3::Hash, second: u64) -> bool {
        self.second == second && self.token == token && self.by.as_ptr() == Arc::as_ptr(by)
    }
}

/// Seconds, by the clock that `jsonwebtoken` compares with.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm;
    use serde_json::{Map, Value};

    use super::*;

    fn verifier() -> Arc<TokenVerifier> {
        let validation = Validation::new(Algorithm::HS256);
        Arc::new(TokenVerifier { key: DecodingKey::from_secret(&[7; 32]), validation })
    }

    fn claims() -> Claims {
        Claims::new(Map::from_iter([("sub".to_owned(), Value::from("ada"))]))
    }

    #[test]
    fn a_result_counts_for_this_token_and_this_verifier_within_one_second() {
        let (verifier, other) = (verifier(), verifier());
        let remember = |second| {
            let token = blake3::hash(b"token");
            let by = Arc::downgrade(&verifier);
            LAST.set(Some(Verified { by, token, second, claims: Some(claims()) }));
        };
        let second = loop {
            // Unless the second has just ended.
            let second = now();
            remember(second);
            let again = verifier.verify("token");
            if now() == second {
                assert_eq!(again, Some(claims()), "it is not verified again");
                break second;
            }
        };
        for (by, token, second) in
            [(&verifier, "tokem", second), (&other, "token", second), (&verifier, "token", second - 60)]
        {
            remember(second);
            assert_eq!(by.verify(token), None);
        }
    }
}
