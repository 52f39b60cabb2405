//! Walks from the proxy that connected to the client behind it.
//!
//! The walk goes from right to left, while the element is a trusted proxy. The first other element
//! is the client, and nothing to the left of it is read. Garbage ends the walk at once: skipping it would
//! lead to text that the client wrote.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HeaderValue, ValueIter};

use super::address;
use super::elements::FromTheRight;
use super::networks::Networks;
use sluicegate_core::store::ForwardedFault as Fault;

/// The trusted proxies.
#[derive(Clone, Debug)]
pub(super) enum Proxies {
    Named(Arc<Networks>),
    Hops(usize),
    Anyone,
}

impl Proxies {
    /// Whether the peer's header is trusted.
    #[inline]
    pub(super) fn trust(&self, peer: Option<IpAddr>) -> bool {
        match self {
            Self::Named(networks) => peer.is_some_and(|ip| networks.contains(ip)),
            Self::Hops(_) | Self::Anyone => true,
        }
    }

    /// Whether the element at this index from the right is a proxy, so that the element before it is trusted.
    fn include(&self, place: usize, ip: IpAddr) -> bool {
        match self {
            Self::Named(networks) => networks.contains(ip),
            &Self::Hops(hops) => place + 1 < hops,
            Self::Anyone => true,
        }
    }
}

/// The end of a walk: the client, or with a fault the last trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkEnd {
    pub(super) ip: Option<IpAddr>,
    pub(super) fault: Option<Fault>,
}

impl WalkEnd {
    pub(super) fn at(ip: Option<IpAddr>) -> Self {
        Self { ip, fault: None }
    }

    fn stopped(ip: Option<IpAddr>, fault: Fault) -> Self {
        Self { ip, fault: Some(fault) }
    }
}

/// Walks over the proxies to the first other address: the client.
pub(super) fn walk(
    peer: Option<IpAddr>,
    proxies: &Proxies,
    elements: FromTheRight<'_>,
    read: fn(&[u8]) -> Option<IpAddr>,
) -> WalkEnd {
    let mut hop = peer;
    let mut place = 0;
    for element in elements {
        let Ok(element) = element else { return WalkEnd::stopped(hop, Fault::TooLong) };
        // Never skipped: no trusted proxy wrote the elements to the left of it.
        let Some(ip) = read(element) else { return WalkEnd::stopped(hop, Fault::Unreadable) };
        if !proxies.include(place, ip) {
            return WalkEnd::at(Some(ip));
        }
        hop = Some(ip);
        place += 1;
    }
    match proxies {
        Proxies::Hops(_) => WalkEnd::stopped(peer, Fault::Missing),
        _ if place == 0 => WalkEnd::stopped(peer, Fault::Missing),
        // All elements are proxies: the leftmost is the client.
        _ => WalkEnd::at(hop),
    }
}

/// The address in a header with one value that the proxy sets.
pub(super) fn single(peer: Option<IpAddr>, mut lines: ValueIter<'_, HeaderValue>) -> WalkEnd {
    match (lines.next(), lines.next()) {
        (None, _) => WalkEnd::stopped(peer, Fault::Missing),
        (Some(_), Some(_)) => WalkEnd::stopped(peer, Fault::Repeated),
        (Some(line), None) => match address::read(line.as_bytes()) {
            Some(ip) => WalkEnd::at(Some(ip)),
            None => WalkEnd::stopped(peer, Fault::Unreadable),
        },
    }
}
