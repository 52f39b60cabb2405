//! Settings that cannot work are refused where they are made, and the message names them.

use std::fmt::Debug;

use sluicegate_core::ConfigError;
use sluicegate_tower::key::{ApiKey, Cookie, Networks};
use sluicegate_tower::{ClientIp, PeerIp};

use super::parts::{PROXY, address, behind_ten, found, from};

#[track_caller]
fn refused<T: Debug>(made: Result<T, ConfigError>, parts: &[&str]) {
    let message = made.unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} says nothing of {part:?}");
    }
}

#[test]
fn a_proxy_that_is_not_a_network_is_named() {
    for text in [
        "10.0.0.0/33",
        "2001:db8::/129",
        "localhost",
        "10.0.0",
        "",
        "10.0.0.0/-1",
        "10.0.0.0/8/8",
        "fe80::1%eth0",
    ] {
        refused(
            ClientIp::behind(["192.0.2.1", text]),
            &[&format!("{text:?} is not a network"), "10.0.0.0/8"],
        );
        refused(Networks::new([text]), &["is not a network"]);
    }
}

#[test]
fn a_network_with_bits_behind_its_prefix_is_the_network_around_it() {
    let client_ip = ClientIp::behind(["10.0.0.1/8"]).unwrap();
    let parts = from("10.9.9.9", &[("x-forwarded-for", "198.51.100.7")]);
    assert_eq!(found(&client_ip, &parts), Ok(address("198.51.100.7")));
}

#[test]
fn trusting_everybody_has_to_be_said_by_name() {
    for all in ["0.0.0.0/0", "::/0", "::ffff:0:0/96", "10.0.0.1/0"] {
        refused(
            ClientIp::behind(["10.0.0.0/8", all]),
            &["/0 would let every client", "insecure_behind_anyone()"],
        );
    }
    refused(ClientIp::behind(["0.0.0.0/1", "128.0.0.0/1"]), &["0.0.0.0/0 would let every client"]);
    refused(ClientIp::behind([""; 0]), &["no proxies are named"]);
}

#[test]
fn networks_are_text_or_what_prints_as_such_in_a_list_or_alone() {
    let address: std::net::IpAddr = PROXY.parse().unwrap();
    let network: ipnet::IpNet = "10.0.0.0/8".parse().unwrap();
    let parts = from(PROXY, &[("x-forwarded-for", "198.51.100.7")]);
    for client_ip in [
        ClientIp::behind("10.0.0.0/8"),
        ClientIp::behind(String::from("10.0.0.0/8")),
        ClientIp::behind(address),
        ClientIp::behind([network]),
        ClientIp::behind(vec![address]),
        ClientIp::behind(&["10.0.0.0/8".to_owned()]),
        ClientIp::behind([10, 11].map(|part| format!("{part}.0.0.0/8")).iter()),
    ] {
        assert_eq!(client_ip.unwrap().address(&parts), Some([198, 51, 100, 7].into()));
    }
    assert!(Networks::new("192.0.2.0/24").unwrap().contains([192, 0, 2, 9].into()));
    refused(ClientIp::behind("10.0.0.0/8, 11.0.0.0/8"), &["\"10.0.0.0/8, 11.0.0.0/8\" is not a network"]);
}

#[test]
fn a_prefix_is_1_to_128_bits() {
    for bits in [0, 129, 255] {
        refused(behind_ten().ipv6_prefix(bits), &[&format!("{bits} bits"), "1 to 128"]);
        refused(PeerIp::new().ipv6_prefix(bits), &[&format!("{bits} bits"), "1 to 128"]);
    }
    for bits in [1, 48, 128] {
        assert!(behind_ten().ipv6_prefix(bits).is_ok());
    }
}

#[test]
fn hops_are_1_to_32() {
    for hops in [0, 33, usize::MAX] {
        refused(ClientIp::hops(hops), &[&format!("{hops} proxies"), "1 to 32"]);
    }
    assert!(ClientIp::hops(32).is_ok());
}

#[test]
fn a_name_that_no_header_or_cookie_can_have_is_shown() {
    for name in ["X Forwarded", "", "x-\u{e4}", "a\nb"] {
        refused(behind_ten().header(name), &[&format!("{name:?}"), "header"]);
        refused(ApiKey::header(name), &[&format!("{name:?}"), "header"]);
        refused(Cookie::new(name), &[&format!("{name:?}"), "cookie"]);
    }
    let long = "x y".repeat(1_000);
    assert!(ApiKey::header(&long).unwrap_err().to_string().len() < 200);
    for list in ["X-Forwarded-For", "forwarded"] {
        refused(behind_ten().header(list), &[&list.to_lowercase(), "holds a list", ".forwarded()"]);
    }
}
