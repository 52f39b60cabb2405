//! Opaque credentials in a header: [`Bearer`] and [`ApiKey`].

use http::header::{AUTHORIZATION, HeaderName};
use sluicegate_core::{ConfigError, Key};

use super::digest::{Digest, TOKEN, one_of, only};
use crate::key::text::header_name;
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

sluicegate_core::debug_as!(Bearer {});

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

/// One bucket per API key in a header. The key is not verified: a client that invents keys gets a fresh bucket for each, so add a
/// limit by address, as below, or accept only known keys, with [`verified_by`](KeyExtractor::verified_by).
///
/// Keys are compared byte by byte and kept only as a digest. A blank value counts as missing; keys longer than 8 KiB share one bucket;
/// a request with two different keys is refused with 400, because the application may read either of them.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{KeyExtractor, Limit, PeerIp, RateLimitLayer};
/// use sluicegate_tower::key::ApiKey;
///
/// let store = MemoryStore::new();
/// let per_key = Limit::new(Policy::gcra("key", "100/min").on(&store)?).key(ApiKey::header("x-api-key")?.or(PeerIp::new()));
/// let per_address = Limit::new(Policy::gcra("address", "1000/min").on(&store)?);
/// let layer = RateLimitLayer::builder(per_key).and(per_address).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ApiKey {
    name: HeaderName,
    digest: Digest,
}

impl ApiKey {
    /// The API key in the header called `name`, in any case.
    ///
    /// # Errors
    /// When `name` cannot be the name of a header.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self { name: header_name(name)?, digest: Digest::of(TOKEN, "") })
    }

    /// The bucket of an API key, to peek at it or to reset it. A [`Bearer`](super::Bearer) token with this text has the same bucket.
    pub fn key_of(&self, api_key: impl AsRef<[u8]>) -> Key {
        self.digest.key(api_key.as_ref())
    }

    /// Whether a request sends one of these API keys.
    ///
    /// ```
    /// use sluicegate_tower::key::ApiKey;
    ///
    /// let is_partner = ApiKey::header("x-api-key")?.one_of(["k-partner-1", "k-partner-2"]);
    /// # let request = http::Request::new(());
    /// assert!(!is_partner((&request).into()));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn one_of(
        &self,
        api_keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
        let keys = api_keys.into_iter().map(|api_key| self.key_of(api_key)).collect();
        let this = self.clone();
        one_of(move |request| this.find(request), keys)
    }

    fn find(&self, request: RequestView<'_>) -> Result<Key, MissingKey> {
        match only(request.headers, &self.name)? {
            Some(api_key) => Ok(self.key_of(api_key)),
            None => Err(MissingKey::new(format!("the header {} is missing", self.name))),
        }
    }
}

impl KeyExtractor for ApiKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.find(request).into()
    }

    fn is_invented(&self) -> bool {
        true
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![self.digest.form()]
    }
}

sluicegate_core::debug_as!(ApiKey { name });

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
