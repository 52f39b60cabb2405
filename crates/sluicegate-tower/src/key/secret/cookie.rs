//! Session cookies: [`Cookie`].

use std::borrow::Cow;

use http::StatusCode;
use http::header::COOKIE;
use sluicegate_core::{ConfigError, Key};

use super::digest::{Digest, one_of};
use crate::key::text::{config_error, hex, shown};
use crate::key::{Extraction, KeyExtractor, KeyForm, MissingKey, RequestView};

/// The most cookies that are read; browsers keep fewer than 200 for a site.
const MAX_COOKIES: usize = 512;

/// One bucket per value of a cookie, such as a session cookie.
///
/// A value has one bucket, whatever its spelling: frameworks read `s%31` and `"s1"` as `s1`, and names likewise. An empty
/// value counts as missing. A request with two different values is refused with 400, because some frameworks read the first
/// one and axum's the last: see [`first_of_several`](Self::first_of_several). A request with more than 512 cookies is
/// refused with 400 as well, so that reading them stays cheap. For the rest, see [`ApiKey`](super::ApiKey): a client that discards cookies
/// gets a new bucket with each new session.
#[derive(Clone)]
pub struct Cookie {
    name: Box<str>,
    digest: Digest,
    takes_first: bool,
}

impl Cookie {
    /// The cookie with exactly this name.
    ///
    /// # Errors
    /// When `name` cannot be the name of a cookie.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            let problem =
                "cannot be the name of a cookie: use letters, digits, '-' and '_', like \"session\"";
            return Err(config_error(format!("{} {problem}", shown(name))));
        }
        Ok(Self { name: name.into(), digest: Digest::of("cookie", name), takes_first: false })
    }

    /// Uses the first of several different values instead of refusing the request. It is only for applications that read the
    /// first value, too: otherwise a client gets a new bucket with each value that it puts before its session value.
    #[must_use]
    pub fn first_of_several(mut self) -> Self {
        self.takes_first = true;
        self
    }

    /// The bucket of a value of this cookie, to peek at it or to reset it.
    pub fn key_of(&self, value: impl AsRef<[u8]>) -> Key {
        self.digest.key(&plain(value.as_ref()))
    }

    /// Whether a request sends one of these values of the cookie.
    pub fn one_of(
        &self,
        values: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
        let keys = values.into_iter().map(|value| self.key_of(value)).collect();
        let this = self.clone();
        one_of(move |request| this.find(request), keys)
    }

    fn find(&self, request: RequestView<'_>) -> Result<Key, MissingKey> {
        // HTTP/2 clients may send a line for each cookie.
        let lines = request.headers.get_all(COOKIE).iter();
        let mut cookies = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
        let mut first: Option<Cow<'_, [u8]>> = None;
        for cookie in cookies.by_ref().take(MAX_COOKIES) {
            let Some(value) = self.value(cookie) else { continue };
            match &first {
                None => first = Some(value),
                Some(first) if self.takes_first || value == *first => {}
                Some(_) => return Err(self.refused("is there with different values".into())),
            }
        }
        // Cookies that are not read could hide a session, or a second value.
        if cookies.next().is_some() {
            return Err(self.refused(format!("comes with too many others: send at most {MAX_COOKIES}")));
        }
        match first {
            Some(value) if !value.is_empty() => Ok(self.digest.key(&value)),
            _ => Err(MissingKey::new(format!("the cookie {} is missing", self.name))),
        }
    }

    /// The plain value of a cookie, if it has this name.
    fn value<'a>(&self, cookie: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let (name, value) = cookie.split_at(cookie.iter().position(|&byte| byte == b'=')?);
        let is_ours = *decoded(name.trim_ascii()) == *self.name.as_bytes();
        is_ours.then(|| plain(value[1..].trim_ascii()))
    }

    fn refused(&self, problem: String) -> MissingKey {
        MissingKey::new(format!("the cookie {} {problem}", self.name)).rejecting(StatusCode::BAD_REQUEST)
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.find(request).into()
    }

    fn is_invented(&self) -> bool {
        true
    }

    fn forms(&self) -> Vec<KeyForm> {
        let this = self.clone();
        vec![KeyForm::secret("the value of a cookie", move |text| this.key_of(text.trim()))]
    }
}

/// A value in canonical spelling. Quotes are removed here, once for each value: unquoting a value of many quotes for
/// each comparison took seconds.
fn plain(value: &[u8]) -> Cow<'_, [u8]> {
    match decoded(value) {
        Cow::Borrowed(value) => Cow::Borrowed(unquoted(value)),
        Cow::Owned(value) => Cow::Owned(unquoted(&value).to_vec()),
    }
}

/// Text with all percent-encoding removed, including repeated encoding. The application may or may not decode, and a
/// client that does not know a secret cannot spell it in either form.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    for &byte in text {
        plain.push(byte);
        while let &[.., b'%', high, low] = plain.as_slice()
            && let Some((high, low)) = hex(high).zip(hex(low))
        {
            plain.truncate(plain.len() - 3);
            plain.push(high << 4 | low);
        }
    }
    Cow::Owned(plain)
}

/// A value may stand in quotes (RFC 6265, section 4.1.1).
fn unquoted(mut value: &[u8]) -> &[u8] {
    while let Some(inside) = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) {
        value = inside;
    }
    value
}

sluicegate_core::debug_as!(Cookie { name });
