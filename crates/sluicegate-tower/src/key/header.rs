//! The unchanged value of a header: [`HeaderKey`].

use http::header::{HeaderMap, HeaderName};
use sluicegate_core::ConfigError;

use crate::key::text::{bounded, header_name};
use crate::key::{Extraction, KeyExtractor, KeyForm, RequestView};

/// One bucket per value of a header. Clients choose what they send: see [`KeyExtractor`].
///
/// An empty or blank value counts as missing; of several lines the first counts. Values are compared byte by byte; all
/// values longer than 8 KiB share one bucket. For secrets there is [`ApiKey`](crate::key::ApiKey).
///
/// # When not to use it
/// For headers that clients may set themselves: a client that sends another value gets another bucket. Use
/// it for headers that your proxy sets and overwrites.
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// The header called `name`, in any case.
    ///
    /// # Errors
    /// When `name` cannot be the name of a header.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        header_name(name).map(Self)
    }

    fn value<'a>(&self, headers: &'a HeaderMap) -> Option<&'a [u8]> {
        headers.get(&self.0).map(|value| value.as_bytes().trim_ascii()).filter(|value| !value.is_empty())
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match self.value(request.headers) {
            Some(value) => Extraction::found(bounded(value)),
            None => Extraction::missing(format!("the header {} is missing", self.0)),
        }
    }

    fn is_invented(&self) -> bool {
        true
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![KeyForm::new("text", "text", |text, _| Some(bounded(text.trim().as_bytes())))]
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};
    use sluicegate_core::Key;

    use super::*;

    fn key(value: Option<&[u8]>) -> Result<Key, String> {
        let mut request = Request::new(());
        if let Some(value) = value {
            request.headers_mut().insert("x-api-key", HeaderValue::from_bytes(value).unwrap());
        }
        let header = HeaderKey::new("X-Api-Key").unwrap();
        header.extract((&request).into()).now().unwrap().map_err(|missing| missing.to_string())
    }

    #[test]
    fn a_blank_header_is_a_missing_one() {
        assert_eq!(key(Some(b"  k1 ")), Ok("k1".into()));
        assert_eq!(key(Some(b"k\xff")), Ok(b"k\xff"[..].into()));
        for absent in [Some(&b""[..]), Some(b" \t "), None] {
            assert_eq!(key(absent).unwrap_err(), "the header x-api-key is missing");
        }
        assert!(HeaderKey::new("X Forwarded").unwrap_err().to_string().contains("\"X Forwarded\""));
    }
}
