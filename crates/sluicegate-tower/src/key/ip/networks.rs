//! Sets of networks: [`Networks`].

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Net, Ipv6Subnets};
use sluicegate_core::ConfigError;

use crate::key::text::{config_error, shown};

/// A network or a list of networks, for [`Networks::new`] and [`ClientIp::behind`](crate::ClientIp::behind): text, or anything else that
/// prints as a network or an address. The compiler infers whether it `IS_LIST`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a network nor a list of networks",
    label = "write \"10.0.0.0/8\", an `IpAddr`, or a list of these"
)]
pub trait IntoNetworks<const IS_LIST: bool> {
    /// The text of each network.
    fn into_texts(self) -> Vec<String>;
}

impl<N: fmt::Display> IntoNetworks<false> for N {
    fn into_texts(self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl<I: IntoIterator<Item: fmt::Display>> IntoNetworks<true> for I {
    fn into_texts(self) -> Vec<String> {
        self.into_iter().map(|network| network.to_string()).collect()
    }
}

/// A set of networks, for lists of exempt or refused clients.
///
/// They are written as text, or as anything that prints as a network or an address: `10.0.0.0/8`, `2001:db8::/32`, and
/// `192.0.2.1` for a single address. An IPv4-mapped IPv6 address counts as its IPv4 address, in the list and in a
/// look-up. A look-up takes a few comparisons, however long the list.
///
/// ```
/// use sluicegate_tower::key::Networks;
///
/// let offices = Networks::new(["203.0.113.0/24", "2001:db8:7::/48", "192.0.2.1"])?;
/// assert!(offices.contains("203.0.113.99".parse()?));
/// assert!(offices.contains("::ffff:192.0.2.1".parse()?));
/// assert!(!offices.contains("192.0.2.2".parse()?));
///
/// let error = Networks::new(["10.0.0.0/33"]).unwrap_err();
/// assert!(error.to_string().starts_with(r#""10.0.0.0/33" is not a network"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Networks {
    /// The first and last addresses of disjoint networks, in order.
    v4: Box<[(u32, u32)]>,
    /// As `v4`.
    v6: Box<[(u128, u128)]>,
}

impl Networks {
    /// The set of these networks.
    ///
    /// A text with bits set behind its prefix, like `10.0.0.1/8`, counts as the network around it, and a warning is
    /// logged.
    ///
    /// # Errors
    /// For the first text that is neither a network nor an address.
    pub fn new<const IS_LIST: bool>(networks: impl IntoNetworks<IS_LIST>) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks.into_texts() {
            match read(&network)? {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => v6.push(network),
            }
        }
        let v4 =
            Ipv4Net::aggregate(&v4).into_iter().map(|net| (net.network().into(), net.broadcast().into()));
        let v6 =
            Ipv6Net::aggregate(&v6).into_iter().map(|net| (net.network().into(), net.broadcast().into()));
        Ok(Self { v4: v4.collect(), v6: v6.collect() })
    }

    /// Whether the address is in one of the networks.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => holds(&self.v4, ip.into()),
            IpAddr::V6(ip) => holds(&self.v6, ip.into()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The network with all addresses of a family, if there is one: `0.0.0.0/0` or `::/0`.
    ///
    /// ```
    /// use sluicegate_tower::key::Networks;
    ///
    /// assert_eq!(Networks::new(["0.0.0.0/1", "128.0.0.0/1"])?.everything(), Some("0.0.0.0/0"));
    /// assert_eq!(Networks::new(["10.0.0.0/8"])?.everything(), None);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn everything(&self) -> Option<&'static str> {
        match (&*self.v4, &*self.v6) {
            ([(0, u32::MAX)], _) => Some("0.0.0.0/0"),
            (_, [(0, u128::MAX)]) => Some("::/0"),
            _ => None,
        }
    }
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = self.v4.iter().flat_map(|&(first, last)| Ipv4Subnets::new(first.into(), last.into(), 0));
        let v6 = self.v6.iter().flat_map(|&(first, last)| Ipv6Subnets::new(first.into(), last.into(), 0));
        f.debug_set().entries(v4).entries(v6).finish()
    }
}

/// Only the last network that begins at or before the address can include it.
#[inline]
fn holds<A: Copy + Ord>(networks: &[(A, A)], ip: A) -> bool {
    let after = networks.partition_point(|&(first, _)| first <= ip);
    after > 0 && ip <= networks[after - 1].1
}

fn read(text: &str) -> Result<IpNet, ConfigError> {
    let text = text.trim_ascii();
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let Ok(network) = network else {
        return Err(config_error(format!(
            "{} is not a network: write an address and the bits that count, up to 32 for IPv4 and 128 for IPv6, like \
             \"10.0.0.0/8\" or \"2001:db8::/32\"",
            shown(text)
        )));
    };
    if network != network.trunc() {
        tracing::warn!(
            "the network {network} has bits set behind its prefix: it is taken as {}",
            network.trunc()
        );
    }
    Ok(canonical(network.trunc()))
}

/// The network in canonical form, because addresses are looked up in that form.
fn canonical(network: IpNet) -> IpNet {
    match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
        (IpAddr::V4(ip), Some(bits)) if matches!(network, IpNet::V6(_)) => {
            Ipv4Net::new(ip, bits).map_or(network, IpNet::V4)
        }
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_may_overlap_touch_and_come_in_any_order() {
        let networks =
            Networks::new(["10.128.0.0/9", "192.0.2.1", "10.0.0.0/9", "10.1.0.0/16", "2001:db8::/32", "::1"])
                .unwrap();
        for inside in ["10.0.0.0", "10.255.255.255", "192.0.2.1", "2001:db8:ffff::", "::1", "::ffff:10.3.2.1"]
        {
            assert!(networks.contains(ip(inside)), "{inside}");
        }
        for outside in
            ["9.255.255.255", "11.0.0.0", "192.0.2.0", "192.0.2.2", "2001:db9::", "::2", "::10.3.2.1"]
        {
            assert!(!networks.contains(ip(outside)), "{outside}");
        }
        assert!(!Networks::new([""; 0]).unwrap().contains(ip("10.0.0.1")));
    }

    #[test]
    fn a_mapped_network_is_the_network_that_it_maps() {
        let mapped = Networks::new(["::ffff:10.0.0.0/104", "::ffff:192.0.2.1"]).unwrap();
        assert_eq!(mapped, Networks::new(["10.0.0.0/8", "192.0.2.1/32"]).unwrap());
        assert_eq!(Networks::new(["::ffff:0:0/96"]).unwrap().everything(), Some("0.0.0.0/0"));
    }

    #[test]
    fn debug_shows_the_networks() {
        let networks = Networks::new(["10.0.0.0/9", "10.128.0.0/9", "2001:db8::/32"]).unwrap();
        assert_eq!(format!("{networks:?}"), "{10.0.0.0/8, 2001:db8::/32}");
    }
}
