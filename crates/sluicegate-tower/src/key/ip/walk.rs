//! From the proxy that connected to the client that it connected for.
//!
//! Right to left, as long as the element at hand is a proxy that is believed. The first that is not
//! is the client, and nothing to the left of it is looked at. Garbage ends the walk where it
//! stands, never one step further: skipping it would land on what the client wrote.

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
    /// Whether what the peer sends is worth reading.
    #[inline]
    pub(super) fn trust(&self, peer: Option<IpAddr>) -> bool {
        match self {
            Self::Named(networks) => peer.is_some_and(|ip| networks.contains(ip)),
            Self::Hops(_) | Self::Anyone => true,
        }
    }

    /// Whether the element at this place from the right is a proxy, so that the one before it is to be believed.
    fn include(&self, place: usize, ip: IpAddr) -> bool {
        match self {
            Self::Named(networks) => networks.contains(ip),
            &Self::Hops(hops) => place + 1 < hops,
            Self::Anyone => true,
        }
    }
}

/// Where a walk ended. With a fault, at the last proxy that could be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) ip: Option<IpAddr>,
    pub(super) fault: Option<Fault>,
}

impl End {
    pub(super) fn at(ip: Option<IpAddr>) -> Self {
        Self { ip, fault: None }
    }

    fn stopped(ip: Option<IpAddr>, fault: Fault) -> Self {
        Self { ip, fault: Some(fault) }
    }
}

/// Walks over the proxies to the first address that is none of them: the client.
pub(super) fn walk(
    peer: Option<IpAddr>,
    proxies: &Proxies,
    elements: FromTheRight<'_>,
    read: fn(&[u8]) -> Option<IpAddr>,
) -> End {
    let mut hop = peer;
    let mut place = 0;
    for element in elements {
        let Ok(element) = element else { return End::stopped(hop, Fault::TooLong) };
        // Never skipped: nobody vouched for what is to the left of it.
        let Some(ip) = read(element) else { return End::stopped(hop, Fault::Unreadable) };
        if !proxies.include(place, ip) {
            return End::at(Some(ip));
        }
        hop = Some(ip);
        place += 1;
    }
    match proxies {
        Proxies::Hops(_) => End::stopped(peer, Fault::Missing),
        _ if place == 0 => End::stopped(peer, Fault::Missing),
        // All of them are proxies: the leftmost asks for itself.
        _ => End::at(hop),
    }
}

/// The address in a header that the proxy sets, and that has one value.
pub(super) fn single(peer: Option<IpAddr>, mut lines: ValueIter<'_, HeaderValue>) -> End {
    match (lines.next(), lines.next()) {
        (None, _) => End::stopped(peer, Fault::Missing),
        (Some(_), Some(_)) => End::stopped(peer, Fault::Repeated),
        (Some(line), None) => match address::read(line.as_bytes()) {
            Some(ip) => End::at(Some(ip)),
            None => End::stopped(peer, Fault::Unreadable),
        },
    }
}
