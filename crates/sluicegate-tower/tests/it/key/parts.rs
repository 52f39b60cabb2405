//! Requests, and the keys that extractors find in them.

use http::request::Parts;
use http::{HeaderValue, Request};
use sluicegate_core::Key;
use sluicegate_tower::key::{MissingKey, PeerAddr};
use sluicegate_tower::{ClientIp, KeyExtractor};

/// The proxy that all requests come from, unless said otherwise.
pub(crate) const PROXY: &str = "10.0.0.9";

/// A request without a peer.
pub(crate) fn anonymous(headers: &[(&'static str, &str)]) -> Parts {
    let mut parts = Request::new(()).into_parts().0;
    for (name, value) in headers {
        parts.headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    parts
}

/// A request from this peer.
pub(crate) fn from(peer: &str, headers: &[(&'static str, &str)]) -> Parts {
    let mut parts = anonymous(headers);
    parts.extensions.insert(PeerAddr((peer.parse::<std::net::IpAddr>().unwrap(), 4_711).into()));
    parts
}

/// Clients behind proxies in 10.0.0.0/8.
pub(crate) fn behind_ten() -> ClientIp {
    ClientIp::behind(["10.0.0.0/8"]).unwrap()
}

/// What is found at once.
pub(crate) fn found(extractor: &impl KeyExtractor, parts: &Parts) -> Result<Key, MissingKey> {
    extractor.extract(parts.into()).now().expect("nothing has to be waited for")
}

/// The key of an address as it stands.
pub(crate) fn address(text: &str) -> Key {
    text.parse::<std::net::IpAddr>().unwrap().into()
}
