//! Opaque bearer tokens: [`Bearer`].

use std::fmt;

use http::header::AUTHORIZATION;
use sluicegate_core::Key;

use super::digest::{Digest, TOKEN, one_of, only};
use crate::key::{Extraction, KeyExtractor, KeyForm, MissingKey, RequestView};

/// One bucket per bearer token in `Authorization` (RFC 6750), whatever its content.
///
/// The scheme's name may be in any case. Other schemes, and tokens with invalid syntax, count as missing. For the rest, see
/// [`ApiKey`](super::ApiKey): tokens are not verified here, and a client with a new token gets a new bucket.
///
/// # When not to use it
/// For JSON Web Tokens, which are reissued every few minutes: `BearerJwt` (feature `jwt`) counts
/// by their subject.
#[derive(Clone)]
pub struct Bearer {
    digest: Digest,
}

impl Bearer {
    /// The token in `Authorization: Bearer …`.
    pub fn new() -> Self {
        Self { digest: Digest::of(TOKEN, "") }
    }

    /// The bucket of a token, to peek at it or to reset it. An [`ApiKey`](super::ApiKey) with this text has the same bucket.
    pub fn key_of(&self, token: impl AsRef<[u8]>) -> Key {
        self.digest.key(token.as_ref())
    }

    /// Whether a request sends one of these tokens.
    pub fn one_of(
        &self,
        tokens: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
        let keys = tokens.into_iter().map(|token| self.key_of(token)).collect();
        let this = self.clone();
        one_of(move |request| Ok(this.key_of(token(request)?)), keys)
    }
}

impl Default for Bearer {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyExtractor for Bearer {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        token(request).map(|token| self.key_of(token)).into()
    }

    fn is_invented(&self) -> bool {
        true
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![self.digest.form()]
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer")
    }
}

/// The token of a request, unverified.
pub(super) fn token(request: RequestView<'_>) -> Result<&str, MissingKey> {
    only(request.headers, &AUTHORIZATION)?
        .and_then(read)
        .ok_or_else(|| MissingKey::new("the request has no bearer token"))
}

/// `"Bearer" 1*SP b64token`
fn read(credentials: &[u8]) -> Option<&str> {
    let (scheme, token) = str::from_utf8(credentials).ok()?.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    let text = token.trim_end_matches('=');
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    (scheme.eq_ignore_ascii_case("bearer") && !text.is_empty() && text.bytes().all(is_token)).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_the_rfc_says() {
        for good in ["Bearer a.b-c_d~e+f/9==", "bearer a.b-c_d~e+f/9==", "BEARER   a.b-c_d~e+f/9=="] {
            assert_eq!(read(good.as_bytes()), Some("a.b-c_d~e+f/9=="), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer =",
            "Bearer a b",
            "Bearer\ta",
            "Bearer a=b",
            "Basic YTpi",
            "a",
            "Bearer ä",
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }
}
