//! Session cookies: [`Cookie`].

use std::fmt;

use http::header::COOKIE;
use http::request::Parts;
use sluicegate_core::{ConfigError, ConfigErrorKind, Key};

use super::{Digest, one_of};
use crate::key::{Extraction, KeyExtractor, MissingKey};

/// One bucket per value of a cookie, such as a session's.
///
/// Of several cookies of that name the first counts, as in most frameworks. An empty value counts as missing. For the rest, see
/// [`ApiKey`](super::ApiKey): who throws cookies away gets a new bucket with each new session.
#[derive(Clone)]
pub struct Cookie {
    name: Box<str>,
    digest: Digest,
}

impl Cookie {
    /// The cookie called `name`, exactly so.
    ///
    /// # Errors
    /// When `name` cannot be the name of a cookie.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            let shown: String = name.chars().take(64).collect();
            return Err(ConfigError::new(
                ConfigErrorKind::Layer,
                format!(
                    "{shown:?} cannot be the name of a cookie: use letters, digits, '-' and '_', like \"session\""
                ),
            ));
        }
        Ok(Self { name: name.into(), digest: Digest::of("cookie", name) })
    }

    /// The bucket of a value of this cookie: to peek at it or to reset it.
    pub fn key_of(&self, value: impl AsRef<[u8]>) -> Key {
        self.digest.key(value.as_ref())
    }

    /// Whether a request shows one of these values of the cookie.
    pub fn one_of(
        &self,
        values: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
        let keys = values.into_iter().map(|value| self.key_of(value)).collect();
        let this = self.clone();
        one_of(move |parts| this.find(parts), keys)
    }

    fn find(&self, parts: &Parts) -> Result<Key, MissingKey> {
        // HTTP/2 clients may send a line for each cookie.
        let lines = parts.headers.get_all(COOKIE).iter();
        let mut cookies = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
        let value = cookies.find_map(|cookie| {
            let value = cookie.trim_ascii().strip_prefix(self.name.as_bytes())?;
            value.trim_ascii_start().strip_prefix(b"=").map(<[u8]>::trim_ascii_start)
        });
        match value {
            Some(value) if !value.is_empty() => Ok(self.key_of(value)),
            _ => Err(MissingKey::new(format!("the cookie {} is missing", self.name))),
        }
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Extraction {
        self.find(parts).into()
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookie").field("name", &self.name).finish_non_exhaustive()
    }
}
