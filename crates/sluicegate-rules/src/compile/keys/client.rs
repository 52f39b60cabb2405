//! Finds the address of a client: the section `clients`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use sluicegate_core::ConfigError;
use sluicegate_tower::key::{Networks, RequestView};
use sluicegate_tower::{ClientIp, KeyExtractor, PeerIp};

use crate::at::At;
use crate::compile::value::number;
use crate::error::Problems;
use crate::schema::Clients;
use crate::shown::short;

/// The address that identifies a client: of the peer, or behind proxies.
#[derive(Clone)]
pub(in crate::compile) enum ClientAddress {
    Peer(PeerIp),
    Behind(ClientIp),
}

impl ClientAddress {
    pub(in crate::compile) fn extractor(self) -> Arc<dyn KeyExtractor> {
        match self {
            Self::Peer(peer) => Arc::new(peer),
            Self::Behind(client) => Arc::new(client),
        }
    }

    /// Whether the client of a request is in one of these networks.
    pub(in crate::compile) fn within(
        &self,
        networks: Networks,
    ) -> Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync> {
        match self {
            Self::Peer(peer) => Box::new(peer.within(networks)),
            Self::Behind(client) => Box::new(client.within(networks)),
        }
    }

    pub(super) fn ipv6_prefix(self, bits: u8) -> Result<Self, ConfigError> {
        Ok(match self {
            Self::Peer(peer) => Self::Peer(peer.ipv6_prefix(bits)?),
            Self::Behind(client) => Self::Behind(client.ipv6_prefix(bits)?),
        })
    }

    fn nat64(self) -> Self {
        match self {
            Self::Peer(peer) => Self::Peer(peer.nat64()),
            Self::Behind(client) => Self::Behind(client.nat64()),
        }
    }
}

/// The addresses of the client and of the peer; `None` for the client if the section is wrong, which is reported.
pub(super) fn addresses(
    section: Option<&At<Clients>>,
    problems: &mut Problems<'_>,
) -> [Option<ClientAddress>; 2] {
    let peer = ClientAddress::Peer(PeerIp::new());
    let Some(section) = section else { return [Some(peer.clone()), Some(peer)] };
    let given = &section.value;
    let bits = given.ipv6_prefix.as_ref().and_then(|bits| prefix(bits, problems));
    let grouped = |address: ClientAddress| {
        let address =
            if given.nat64.as_ref().is_some_and(|nat64| nat64.value) { address.nat64() } else { address };
        match bits {
            Some(bits) => address.ipv6_prefix(bits).ok(),
            None => Some(address),
        }
    };
    let client = match (&given.proxies, &given.hops, &given.header) {
        (None, None, None) if given.ipv6_prefix.is_some() || given.nat64.is_some() => Some(peer.clone()),
        _ => behind(section, problems).map(ClientAddress::Behind),
    };
    [client.and_then(grouped), grouped(peer)]
}

/// The number of bits of an IPv6 address that are one client.
pub(super) fn prefix(bits: &At<String>, problems: &mut Problems<'_>) -> Option<u8> {
    u8::try_from(number(bits, "a number of bits", 1..=128, problems)?).ok()
}

fn behind(section: &At<Clients>, problems: &mut Problems<'_>) -> Option<ClientIp> {
    let given = &section.value;
    let mut client = match (&given.proxies, &given.hops) {
        (Some(proxies), None) => {
            let all = proxies.all();
            let before = problems.errors();
            let together = networks_of(&all, problems);
            for network in &all {
                if let Some(everything) =
                    Networks::new([&network.value]).ok().and_then(|one| one.everything())
                {
                    problems.error(network.place, everybody(everything));
                }
            }
            let together = together.filter(|_| problems.errors() == before)?;
            if let Some(everything) = together.everything() {
                problems.error(proxies.place, everybody(everything));
                return None;
            }
            ClientIp::behind(all.iter().map(|network| &network.value))
        }
        (None, Some(hops)) => ClientIp::hops(
            usize::try_from(number(hops, "a number of proxies", 1..=32, problems)?).unwrap_or(32),
        ),
        _ => {
            problems.error(
                section.place,
                "say either \"proxies\", by their networks, or \"hops\", by their number; without proxies, \"ipv6_prefix\" or \"nat64\" alone",
            );
            return None;
        }
    };
    if let Some(header) = &given.header {
        if header.value.parse::<http::HeaderName>().is_err() {
            let text = format!("{:?} is not the name of a header field", short(&header.value));
            problems.error(header.place, text);
            return None;
        }
        client = match &*header.value.to_ascii_lowercase() {
            "forwarded" => client.map(ClientIp::forwarded),
            "x-forwarded-for" => client,
            other => client.and_then(|client| client.header(other)),
        };
    }
    client.map_err(|error| problems.error(section.place, error.problem())).ok()
}

fn everybody(network: &str) -> String {
    format!(
        "{network} would let every client choose its address: name the networks of the proxies; if nobody reaches the service past them, their number does as well, as hops: 1"
    )
}

/// Reads the networks. Returns `None` if one is wrong. A network with bits after its prefix counts as the network around it, with a
/// warning.
pub(in crate::compile) fn networks_of(
    networks: &[At<String>],
    problems: &mut Problems<'_>,
) -> Option<Networks> {
    let before = problems.errors();
    for network in networks {
        if let Err(error) = Networks::new([&network.value]) {
            problems.error(network.place, error.problem());
        } else if let Some(around) = around(&network.value) {
            let text = format!(
                "{:?} has bits behind its prefix: it is taken as {around}; write that, or the prefix that is meant",
                network.value
            );
            problems.warning(network.place, text);
        }
    }
    (problems.errors() == before)
        .then(|| Networks::new(networks.iter().map(|network| &network.value)).ok())?
}

/// The network around this one, if it has bits after its prefix.
fn around(text: &str) -> Option<String> {
    let (address, bits) = text.trim_ascii().split_once('/')?;
    let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
    let network = match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0);
            IpAddr::from(Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits)?).unwrap_or(0);
            IpAddr::from(Ipv6Addr::from(u128::from(ip) & mask))
        }
    };
    (network != address).then(|| format!("{network}/{bits}"))
}
