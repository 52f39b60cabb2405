//! What went wrong in other limiters and proxies, each by its number, tried against this one.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use sluicegate_tower::key::{Networks, RequestPath};
use sluicegate_tower::{ClientIp, PeerIp};

use super::parts::{PROXY, address, behind_ten, found, from};

/// express-rate-limit: a /56 mask on `::ffff:a.b.c.d` put all IPv4 clients into one bucket.
#[test]
fn cve_2026_30827_mapped_addresses_are_not_masked_as_ipv6() {
    let wide = PeerIp::new().ipv6_prefix(56).unwrap();
    let behind = behind_ten().ipv6_prefix(56).unwrap();
    let mut keys = HashSet::new();
    for n in 0..500_u32 {
        let mapped = Ipv4Addr::from(0xc000_0200 + n).to_ipv6_mapped().to_string();
        let peer = found(&wide, &from(&mapped, &[])).unwrap();
        assert_eq!(Ok(&peer), found(&behind, &from(PROXY, &[("x-forwarded-for", &mapped)])).as_ref());
        keys.insert(peer);
    }
    assert_eq!(keys.len(), 500);
}

/// express-rate-limit#667: an address in dotted notation was taken for a mapped one, whatever its prefix.
#[test]
fn express_rate_limit_667_notation_does_not_make_an_address_ipv4() {
    let of = |client: &str| found(&behind_ten(), &from(PROXY, &[("x-forwarded-for", client)]));
    assert_eq!(of("2001:db8::1.2.3.4"), Ok(address("2001:db8::")));
    assert_eq!(of("2001:db8::1.2.3.4"), of("2001:db8::5.6.7.8"), "one network has one bucket");
}

/// OpenClaw: `1.2.3.4` and `::ffff:1.2.3.4` had a budget each.
#[test]
fn ghsa_5847_rm3g_23mw_a_client_has_one_bucket_in_either_form() {
    assert_eq!(
        found(&PeerIp::new(), &from("1.2.3.4", &[])),
        found(&PeerIp::new(), &from("::ffff:1.2.3.4", &[]))
    );
}

/// Go's `net/netip`, as used by Traefik: mapped addresses were not found in IPv4 networks.
#[test]
fn cve_2024_24790_a_mapped_address_is_in_the_networks_of_its_address() {
    let list = [("x-forwarded-for", "198.51.100.7")];
    assert_eq!(found(&behind_ten(), &from("::ffff:10.0.0.9", &list)), Ok(address("198.51.100.7")));
    let inside = behind_ten().within(Networks::new(["192.168.0.0/16"]).unwrap());
    assert!(inside((&from("::ffff:192.168.7.7", &[])).into()));
}

/// Forwarded headers trusted by default, or read from the left: each request with another one had another bucket.
#[track_caller]
fn a_client_that_lies_keeps_its_bucket(header: &'static str) {
    let direct: HashSet<_> = (0..50)
        .map(|n| format!("6.6.6.{n}"))
        .flat_map(|lie| {
            let parts = from("203.0.113.5", &[(header, &lie)]);
            [found(&PeerIp::new(), &parts).unwrap(), found(&behind_ten(), &parts).unwrap()]
        })
        .collect();
    assert_eq!(direct, HashSet::from([address("203.0.113.5")]));
    let through: HashSet<_> = (0..50)
        .map(|n| format!("6.6.6.{n}, 203.0.113.5"))
        .map(|list| {
            found(&behind_ten(), &from(PROXY, &[("x-forwarded-for", &list), ("x-real-ip", "6.6.6.6")]))
                .unwrap()
        })
        .collect();
    assert_eq!(through, HashSet::from([address("203.0.113.5")]));
}

#[test]
fn cve_2025_59152_litestar_trusted_x_forwarded_for() {
    a_client_that_lies_keeps_its_bucket("x-forwarded-for");
}

#[test]
fn cve_2026_118653_echo_trusted_headers_by_default() {
    a_client_that_lies_keeps_its_bucket("x-real-ip");
}

#[test]
fn cve_2026_110723_api_gateway_read_from_the_left() {
    a_client_that_lies_keeps_its_bucket("forwarded");
}

#[test]
fn cve_2026_107271_gophish_trusted_x_forwarded_for() {
    a_client_that_lies_keeps_its_bucket("true-client-ip");
}

/// Traefik and Apache: a client names the proxy's header in `Connection`, and the proxy removes it.
#[track_caller]
fn a_removed_header_frees_nobody(connection: &str) {
    let sources: [ClientIp; 3] =
        [behind_ten(), behind_ten().forwarded(), behind_ten().header("x-real-ip").unwrap()];
    for client_ip in sources {
        assert_eq!(found(&client_ip, &from(PROXY, &[("connection", connection)])), Ok(address(PROXY)));
        assert_eq!(client_ip.faults().missing, 1);
    }
}

#[test]
fn cve_2024_45410_removed_headers_lead_to_the_proxys_bucket() {
    a_removed_header_frees_nobody("X-Forwarded-For, X-Real-Ip");
}

#[test]
fn cve_2026_29054_removed_headers_lead_to_the_proxys_bucket_in_any_case_of_the_name() {
    a_removed_header_frees_nobody("x-real-ip, FORWARDED");
}

#[test]
fn cve_2021_32813_removed_headers_lead_to_the_proxys_bucket() {
    a_removed_header_frees_nobody("x-forwarded-for");
}

#[test]
fn cve_2022_31813_removed_headers_lead_to_the_proxys_bucket() {
    a_removed_header_frees_nobody("close, X-Forwarded-For");
}

/// Traefik: `X.Real.Ip` was passed on, and read by backends as `X-Real-Ip`.
#[test]
fn cve_2026_88011_aliases_of_a_header_are_other_headers() {
    let client_ip = behind_ten().header("x-real-ip").unwrap();
    let aliases = [("x.real.ip", "6.6.6.6"), ("x_real_ip", "6.6.6.6"), ("x-real-ip", "198.51.100.7")];
    assert_eq!(found(&client_ip, &from(PROXY, &aliases)), Ok(address("198.51.100.7")));
    assert_eq!(found(&client_ip, &from(PROXY, &aliases[..2])), Ok(address(PROXY)));
}

/// Envoy: an address with a zone brought it down.
#[test]
fn cve_2026_26310_a_scoped_address_is_an_address() {
    for scoped in ["fe80::1%eth0", "[fe80::1%25eth0]:443", "fe80::1%", "%eth0", "fe80::1%%", "::%lo"] {
        let parts = from(PROXY, &[("x-forwarded-for", scoped)]);
        let key = found(&behind_ten(), &parts).unwrap();
        assert!([address("fe80::"), address(PROXY)].contains(&key), "{scoped}");
    }
}

/// better-auth: `//path` was another path for the limiter, and the same for the router.
#[test]
fn ghsa_x732_6j76_qmhm_two_slashes_are_no_other_path() {
    assert_eq!(path("//sign-in/email"), path("/sign-in/email"));
    assert_eq!(path("/sign-in//email"), path("/sign-in/email"));
}

/// Strapi: case and a trailing slash made another path of it for the limiter.
#[test]
fn ghsa_24q2_59hm_rh9r_case_and_a_trailing_slash_are_no_other_path() {
    for spelling in ["/API/Auth/Local", "/api/auth/local/", "/Api/auth/local//"] {
        assert_eq!(path(spelling), path("/api/auth/local"), "{spelling}");
    }
}

fn path(path: &'static str) -> sluicegate_core::Key {
    let mut parts = super::parts::anonymous(&[]);
    parts.uri = http::Uri::from_static(path);
    found(&RequestPath::new().lowercase(), &parts).unwrap()
}
