//! The other end of the connection: [`PeerAddr`] and [`PeerIp`], and one warning if the peer is probably a proxy.

use std::net::{IpAddr, SocketAddr};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Extensions;
use http::header::{FORWARDED, HeaderMap, HeaderName};
use sluicegate_core::ConfigError;

use super::address::Grouping;
use crate::key::{Extraction, KeyExtractor, KeyForm, KeyKind, MissingKey, RequestView};

/// The peer address of the connection, for servers that put it into the request's extensions.
///
/// With axum's `into_make_service_with_connect_info::<SocketAddr>()` it is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is a name for an address, made by servers")]
pub struct PeerAddr(pub SocketAddr);

/// One bucket per peer address: the other end of the connection, whatever headers say.
///
/// Behind a proxy, it is the proxy: see [`ClientIp`](crate::ClientIp). IPv6 clients own whole networks, so their addresses
/// count by prefix, /64 unless set otherwise; an IPv4-mapped address counts as its IPv4 address.
///
/// The address comes from [`PeerAddr`] or, with the feature `axum`, from axum's `ConnectInfo<SocketAddr>` or a test's
/// `MockConnectInfo<SocketAddr>`, or else from a bare `SocketAddr` in the extensions, which some servers add.
/// Without any of these, the server does not pass on the peer: see
/// [`on_missing_key`](crate::Limit::on_missing_key). A Unix socket has no peer address: see [`ClientIp::hops`](crate::ClientIp::hops).
///
/// A warning is logged once per process if `X-Forwarded-For` or `Forwarded` is in one of the first 1,000 requests.
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    grouping: Grouping,
}

impl PeerIp {
    /// Peer addresses, IPv6 by /64.
    pub const fn new() -> Self {
        Self { grouping: Grouping::DEFAULT }
    }

    /// Sets the number of bits of an IPv6 address that identify a client: 1 to 128. Default: 64.
    ///
    /// # Errors
    /// For a prefix of 0, which would put all clients into one bucket, or above 128.
    pub fn ipv6_prefix(self, bits: u8) -> Result<Self, ConfigError> {
        Ok(Self { grouping: self.grouping.ipv6_prefix(bits)? })
    }

    /// Counts an address in `64:ff9b::/96` as the IPv4 address inside it. Default: it counts by prefix, like all others.
    ///
    /// Use it for servers that IPv4 clients reach through a NAT64 gateway; otherwise these clients would share one bucket.
    #[must_use]
    pub const fn nat64(self) -> Self {
        Self { grouping: self.grouping.nat64() }
    }

    /// The peer's address in canonical form, whole, if it is known.
    pub fn address<'a>(&self, request: impl Into<RequestView<'a>>) -> Option<IpAddr> {
        let request: RequestView<'_> = request.into();
        peer(request.extensions).map(|peer| self.grouping.address(peer.ip()))
    }

    /// The address that stands for the peer's bucket.
    // Not inlined, and IPv4 first: otherwise each question about an address takes its bytes apart and puts them together again.
    #[inline(never)]
    pub(crate) fn bucket(&self, request: &RequestView<'_>) -> Option<IpAddr> {
        let peer = peer(request.extensions)?;
        at_a_peer(request.headers);
        Some(match peer {
            SocketAddr::V4(v4) => IpAddr::V4(*v4.ip()),
            SocketAddr::V6(v6) => self.grouping.bucket(IpAddr::V6(*v6.ip())),
        })
    }
}

impl Default for PeerIp {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyExtractor for PeerIp {
    #[inline]
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match self.bucket(&request) {
            Some(address) => Extraction::found(address),
            None => no_peer(request).into(),
        }
    }

    fn peers(&self) -> Option<PeerIp> {
        Some(*self)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Address
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![self.grouping.form()]
    }
}

/// The reason why a request has no peer, in its extensions in place of a [`PeerAddr`]: for servers that know requests from descriptions.
#[doc(hidden)]
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is a name for a reason, made by servers")]
pub struct NoPeer(pub MissingKey);

/// The missing key of a request without a peer.
pub(super) fn no_peer(request: RequestView<'_>) -> MissingKey {
    let told = request.extensions.get().map(|NoPeer(missing)| missing.clone());
    told.unwrap_or_else(|| MissingKey::mistake(NO_PEER))
}

const NO_PEER: &str = "no peer address: serve with into_make_service_with_connect_info::<SocketAddr>(), behind a Unix socket use ClientIp::hops(1), put a PeerAddr into the request's extensions, or choose OnMissingKey::Share";

/// The peer's address, if the server passes it on; an unspecified address counts as unknown.
#[inline]
pub(super) fn peer(extensions: &Extensions) -> Option<&SocketAddr> {
    fn known(address: &SocketAddr) -> Option<&SocketAddr> {
        Some(address).filter(|address| !address.ip().to_canonical().is_unspecified())
    }
    if let Some(PeerAddr(address)) = extensions.get() {
        return known(address);
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) = extensions.get() {
        return known(address);
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::connect_info::MockConnectInfo::<SocketAddr>(address)) = extensions.get() {
        // Tests may use any peer address; axum's own example uses 0.0.0.0.
        return Some(address);
    }
    extensions.get().and_then(known)
}

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The fields of proxies.
static FIELDS: [HeaderName; 2] = [X_FORWARDED_FOR, FORWARDED];

/// The number of requests that are checked. A proxy in front shows in the first request; checking every request would
/// only cost time.
const LOOKS: u32 = 1_000;

/// The remaining checks; 0 once a header was found.
#[derive(Debug)]
pub(super) struct Looks(AtomicU32);

/// Shared by all [`PeerIp`]s of this process, which have no state of their own.
static AT_PEERS: Looks = Looks(AtomicU32::new(LOOKS));

impl Default for Looks {
    fn default() -> Self {
        Self(AtomicU32::new(LOOKS))
    }
}

impl Looks {
    /// Whether one of these headers has arrived for the first time.
    #[inline]
    fn find(&self, headers: &HeaderMap, names: &[HeaderName]) -> bool {
        // Relaxed, here and below: it is a count that guards no other data.
        self.0.load(Ordering::Relaxed) > 0 && self.look(headers, names)
    }

    #[cold]
    fn look(&self, headers: &HeaderMap, names: &[HeaderName]) -> bool {
        if names.iter().any(|name| headers.contains_key(name)) {
            return self.0.swap(0, Ordering::Relaxed) > 0;
        }
        let one_less = |looks: u32| looks.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        false
    }

    /// Warns if a peer that is not a named proxy sends the proxies' header.
    #[inline]
    pub(super) fn at_a_stranger(&self, headers: &HeaderMap, header: &HeaderName) {
        if self.find(headers, slice::from_ref(header)) {
            tracing::warn!(
                header = header.as_str(),
                "a peer that is none of the named proxies sends a forwarded address, which is not read: if it is a \
                 proxy of yours, name its network in ClientIp::behind; this is said once"
            );
        }
    }
}

/// Warns if a request that counts for its peer has a forwarded address.
#[inline]
pub(super) fn at_a_peer(headers: &HeaderMap) {
    if AT_PEERS.find(headers, &FIELDS) {
        tracing::warn!(
            "requests have a forwarded address, and PeerIp counts their peer: if it is a proxy, all its clients share one \
             bucket, so use ClientIp::behind with its network; this is said once"
        );
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::request::Parts;
    use sluicegate_core::Key;

    use super::*;

    fn from(address: &str) -> Parts {
        let address = PeerAddr(address.parse().unwrap());
        Request::builder().extension(address).body(()).unwrap().into_parts().0
    }

    fn key(extractor: &PeerIp, parts: &Parts) -> Result<Key, String> {
        extractor.extract(parts.into()).now().unwrap().map_err(|missing| missing.to_string())
    }

    #[test]
    fn ipv6_peers_count_by_network_and_mapped_ones_by_address() {
        let peer = PeerIp::new();
        assert_eq!(key(&peer, &from("[2001:db8::1]:1")), key(&peer, &from("[2001:db8::ffff:2]:9")));
        assert_ne!(key(&peer, &from("[2001:db8::1]:1")), key(&peer, &from("[2001:db8:0:1::1]:1")));
        assert_eq!(key(&peer, &from("[::ffff:198.51.100.7]:1")), key(&peer, &from("198.51.100.7:2")));
        assert_ne!(
            key(&peer, &from("[::ffff:198.51.100.7]:1")),
            key(&peer, &from("[::ffff:198.51.100.8]:1"))
        );
        let exact = PeerIp::new().ipv6_prefix(128).unwrap();
        assert_ne!(key(&exact, &from("[2001:db8::1]:1")), key(&exact, &from("[2001:db8::2]:1")));
        assert!(PeerIp::new().ipv6_prefix(0).unwrap_err().to_string().contains("0 bits: use 1 to 128"));
    }

    #[test]
    fn a_bare_socket_address_is_the_peer_where_nothing_else_says_it() {
        let bare: SocketAddr = "198.51.100.7:1".parse().unwrap();
        let mut parts = Request::builder().extension(bare).body(()).unwrap().into_parts().0;
        assert_eq!(key(&PeerIp::new(), &parts), key(&PeerIp::new(), &from("198.51.100.7:2")));
        parts.extensions.insert(PeerAddr("198.51.100.8:1".parse().unwrap()));
        assert_eq!(key(&PeerIp::new(), &parts), key(&PeerIp::new(), &from("198.51.100.8:2")));
        let unspecified: SocketAddr = "0.0.0.0:1".parse().unwrap();
        let parts = Request::builder().extension(unspecified).body(()).unwrap().into_parts().0;
        assert!(key(&PeerIp::new(), &parts).is_err());
    }

    #[test]
    fn no_address_is_no_key() {
        for parts in [
            Request::new(()).into_parts().0,
            from("[::]:80"),
            from("[::ffff:0.0.0.0]:80"),
            from("0.0.0.0:80"),
        ] {
            assert!(key(&PeerIp::new(), &parts).unwrap_err().contains("into_make_service_with_connect_info"));
        }
    }
}
