//! Faults in forwarded headers: counters, and one warning for each kind.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::store::{Event, ForwardedFault, Listeners};

use super::peer::Looks;

/// Whether the header is present but wrong. A missing header does not count: a health check by the proxy itself has none.
pub(super) fn is_malformed(fault: ForwardedFault) -> bool {
    fault != ForwardedFault::Missing
}

pub(super) fn describe(fault: ForwardedFault) -> &'static str {
    match fault {
        ForwardedFault::Unreadable => "the forwarded address is unreadable",
        ForwardedFault::TooLong => "the forwarded addresses are too many",
        ForwardedFault::Repeated => "the forwarded address is there twice",
        _ => "the forwarded address is missing",
    }
}

/// The number of faults of each kind.
///
/// They are counted per extractor, and logged once per kind: a flood of garbage must not become a flood of
/// lines.
#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [AtomicU64; ForwardedFault::ALL.len()],
    pub(super) listeners: Listeners,
    /// The remaining checks of requests from peers that are not named proxies.
    pub(super) strangers: Looks,
}

/// Counts of forwarded headers from trusted proxies that did not lead to a client; see [`ClientIp::faults`].
///
/// [`ClientIp::faults`]: crate::ClientIp::faults
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardedFaults {
    /// The header was missing, or had fewer elements than there are proxies. The proxy may not be configured to send it.
    pub missing: u64,
    /// An element was not an address: empty, `unknown`, hidden, or garbage.
    pub unreadable: u64,
    /// More than 32 elements or 2 KiB would have had to be read.
    pub too_long: u64,
    /// A header with a single value was repeated.
    pub repeated: u64,
}

impl Faults {
    pub(super) fn count(&self, fault: ForwardedFault, header: &str) {
        // Relaxed: the counters are independent.
        if self.counts[fault as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                header,
                "{}: such requests count as the proxy's own, or are refused; further ones are only counted",
                describe(fault)
            );
        }
        self.listeners.tell(&Event::ForwardedFault(fault));
    }

    pub(super) fn snapshot(&self) -> ForwardedFaults {
        let count = |fault: ForwardedFault| self.counts[fault as usize].load(Ordering::Relaxed);
        ForwardedFaults {
            missing: count(ForwardedFault::Missing),
            unreadable: count(ForwardedFault::Unreadable),
            too_long: count(ForwardedFault::TooLong),
            repeated: count(ForwardedFault::Repeated),
        }
    }
}
