//! One line in the log where a forwarded header arrives that no extractor reads: usually the limits count a proxy.

use std::sync::atomic::{AtomicU32, Ordering};

use http::header::{FORWARDED, HeaderMap, HeaderName};

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Requests that are looked at. A proxy in front is seen in the first one; to look at all of them would cost each of them
/// its part for nothing.
const LOOKS: u32 = 1_000;

/// How often it is still looked; 0 once something was found.
#[derive(Debug)]
pub(super) struct Looks(AtomicU32);

/// All [`PeerIp`](super::PeerIp)s of this process, which have no state of their own.
static AT_PEERS: Looks = Looks(AtomicU32::new(LOOKS));

impl Default for Looks {
    fn default() -> Self {
        Self(AtomicU32::new(LOOKS))
    }
}

impl Looks {
    /// Whether one of these headers has arrived for the first time.
    #[inline]
    fn find(&self, headers: &HeaderMap, names: &[&HeaderName]) -> bool {
        // Relaxed, here and below: it is a count and guards nothing else.
        self.0.load(Ordering::Relaxed) > 0 && self.look(headers, names)
    }

    #[cold]
    fn look(&self, headers: &HeaderMap, names: &[&HeaderName]) -> bool {
        if names.iter().any(|name| headers.contains_key(*name)) {
            return self.0.swap(0, Ordering::Relaxed) > 0;
        }
        let one_less = |looks: u32| looks.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        false
    }

    /// A peer that is none of the named proxies sends the header that they send.
    #[inline]
    pub(super) fn at_a_stranger(&self, headers: &HeaderMap, header: &HeaderName) {
        if self.find(headers, &[header]) {
            tracing::warn!(
                header = header.as_str(),
                "a peer that is none of the named proxies sends a forwarded address, which is not read: if it is a \
                 proxy of yours, name its network in ClientIp::behind; this is said once"
            );
        }
    }
}

/// A request that counts as its peer's has a forwarded address.
#[inline]
pub(super) fn at_a_peer(headers: &HeaderMap) {
    if AT_PEERS.find(headers, &[&X_FORWARDED_FOR, &FORWARDED]) {
        tracing::warn!(
            "requests have a forwarded address, and PeerIp counts their peer: if it is a proxy, all its clients share one \
             bucket, so use ClientIp::behind with its network; this is said once"
        );
    }
}
