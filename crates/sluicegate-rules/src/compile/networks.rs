//! Networks that a file names: of proxies, and of clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluicegate_tower::key::Networks;

use crate::at::At;
use crate::error::Problems;

/// Reads the networks. Returns `None` if one is wrong. A network with bits after its prefix counts as the network around it, with a
/// warning.
pub(super) fn of(networks: &[At<String>], problems: &mut Problems<'_>) -> Option<Networks> {
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
