//! Addresses as text and as keys, in one form for all spellings of an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluicegate_core::{ConfigError, Key};

use crate::key::KeyForm;
use crate::key::text::config_error;

/// The longest text that is read: longer than any address with brackets, zone and port.
const MAX_LENGTH: usize = 100;

/// The rule that groups addresses.
///
/// An IPv4 address counts whole. An IPv6 client owns a network and can use any address of it, so
/// its prefix counts, /64 unless set otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping {
    ipv6_prefix: u8,
    nat64: bool,
}

impl Grouping {
    pub(super) const DEFAULT: Self = Self { ipv6_prefix: 64, nat64: false };

    pub(super) fn ipv6_prefix(self, bits: u8) -> Result<Self, ConfigError> {
        if (1..=128).contains(&bits) {
            return Ok(Self { ipv6_prefix: bits, ..self });
        }
        Err(config_error(format!("an IPv6 prefix of {bits} bits: use 1 to 128")))
    }

    pub(super) const fn nat64(self) -> Self {
        Self { nat64: true, ..self }
    }

    /// The whole address, in canonical form.
    #[inline]
    pub(super) fn address(self, ip: IpAddr) -> IpAddr {
        match ip.to_canonical() {
            IpAddr::V6(v6) if self.nat64 => embedded(v6).map_or(IpAddr::V6(v6), IpAddr::V4),
            canonical => canonical,
        }
    }

    /// The form in which operators write an address: any address of a network stands for the network.
    pub(super) fn form(self) -> KeyForm {
        KeyForm::new("address", "an address", move |text, _| Some(self.key(read(text.as_bytes())?)))
    }

    /// The bucket of an address.
    #[inline]
    pub(super) fn key(self, ip: IpAddr) -> Key {
        self.bucket(ip).into()
    }

    /// The address that stands for all addresses of a bucket.
    #[inline]
    pub(super) fn bucket(self, ip: IpAddr) -> IpAddr {
        match self.address(ip) {
            IpAddr::V6(v6) => {
                let mask = u128::MAX << (128 - u32::from(self.ipv6_prefix));
                Ipv6Addr::from(u128::from(v6) & mask).into()
            }
            v4 => v4,
        }
    }
}

/// The IPv4 address inside the well-known prefix of RFC 6052.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        _ => None,
    }
}

/// Reads what proxies write: `IPv4`, `IPv4:port`, `IPv6`, `[IPv6]` and `[IPv6]:port`, the last three with or
/// without a zone. An unspecified address counts as missing.
pub(super) fn read(text: &[u8]) -> Option<IpAddr> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let text = str::from_utf8(text).ok()?.trim_ascii();
    let ip: IpAddr = if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        if !after.is_empty() && !is_port(after.strip_prefix(':')?) {
            return None;
        }
        without_zone(inside)?.parse::<Ipv6Addr>().ok()?.into()
    } else {
        match text.split_once(':') {
            None => text.parse::<Ipv4Addr>().ok()?.into(),
            Some((_, more)) if more.contains(':') => without_zone(text)?.parse::<Ipv6Addr>().ok()?.into(),
            Some((v4, port)) if is_port(port) => v4.parse::<Ipv4Addr>().ok()?.into(),
            Some(_) => return None,
        }
    };
    let ip = ip.to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}

/// Cuts off the zone, which is meaningful only on the machine that wrote it.
fn without_zone(text: &str) -> Option<&str> {
    match text.split_once('%') {
        Some((_, "")) => None,
        Some((address, _)) => Some(address),
        None => Some(text),
    }
}

/// Whether the text is a port; not parsed as `u16`, which also accepts `+80`.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_form_however_it_is_written() {
        for (text, address) in [
            ("198.51.100.7", "198.51.100.7"),
            (" \t198.51.100.7:65535\t", "198.51.100.7"),
            ("2001:DB8::17", "2001:db8::17"),
            ("[2001:db8::17]", "2001:db8::17"),
            ("[2001:db8::17]:4711", "2001:db8::17"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25]:80", "fe80::1"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
            ("[::ffff:c633:6407]:1", "198.51.100.7"),
            ("2001:db8::1.2.3.4", "2001:db8::102:304"),
        ] {
            assert_eq!(read(text.as_bytes()), address.parse().ok(), "{text}");
        }
    }

    #[test]
    fn what_is_not_quite_an_address_is_none() {
        let long = format!("fe80::1%{}", "x".repeat(100));
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "-",
            "010.0.0.1",
            "1.2.3",
            "0x7f.1",
            "2130706433",
            "1.2.3.4.5",
            "1.2.3.4:",
            "1.2.3.4:+80",
            "1.2.3.4:65536",
            "1.2.3.4%eth0",
            "1.2.3.4/8",
            "[1.2.3.4]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "[::1]:x",
            "[::1]]",
            "fe80::1%",
            ":::",
            "2001:db8::/32",
            "\"::1\"",
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            &long,
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"198.51.100.7\xff"), None);
    }
}
