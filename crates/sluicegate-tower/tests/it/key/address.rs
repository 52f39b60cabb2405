//! Client addresses: a case for each way of writing them, and for each way of lying about them.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::StatusCode;
use sluicegate_tower::key::{ForwardedFaults, OnMalformed};
use sluicegate_tower::{ClientIp, KeyExtractor, PeerIp};

use super::parts::{PROXY, address, anonymous, behind_ten, found, from};

/// What a request with these headers from this peer is to be counted as.
#[track_caller]
fn check(id: &str, client_ip: &ClientIp, peer: &str, headers: &[(&'static str, &str)], expected: &str) {
    let key = found(client_ip, &from(peer, headers));
    assert_eq!(key, Ok(address(expected)), "{id}: {headers:?} is not counted as {expected}");
}

/// As `check`, with one line of `X-Forwarded-For` from the proxy.
#[track_caller]
fn check_list(id: &str, list: &str, expected: &str) {
    check(id, &behind_ten(), PROXY, &[("x-forwarded-for", list)], expected);
}

fn x_real_ip() -> ClientIp {
    behind_ten().header("X-Real-IP").unwrap()
}

fn faults(client_ip: &ClientIp) -> [u64; 4] {
    let ForwardedFaults { missing, unreadable, too_long, repeated, .. } = client_ip.faults();
    [missing, unreadable, too_long, repeated]
}

#[test]
fn b01_an_untrusted_peer_is_itself_whatever_it_sends() {
    check("B01", &behind_ten(), "203.0.113.5", &[("x-forwarded-for", "1.1.1.1")], "203.0.113.5");
    check("B01", &behind_ten().forwarded(), "203.0.113.5", &[("forwarded", "for=1.1.1.1")], "203.0.113.5");
    check("B01", &x_real_ip(), "203.0.113.5", &[("x-real-ip", "1.1.1.1")], "203.0.113.5");
}

#[test]
fn b02_to_b04_the_first_address_from_the_right_that_is_no_proxy_is_the_client() {
    check_list("B02", "6.6.6.6, 198.51.100.7", "198.51.100.7");
    check_list("B03", "6.6.6.6, 198.51.100.7, 10.1.2.3", "198.51.100.7");
    let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.7")];
    check("B04", &behind_ten(), PROXY, &lines, "198.51.100.7");
}

#[test]
fn b05_a_list_without_addresses_is_the_proxys_and_is_counted() {
    let client_ip = behind_ten();
    check("B05", &client_ip, PROXY, &[], PROXY);
    assert_eq!(faults(&client_ip), [1, 0, 0, 0]);
    for list in ["", ",,, ,", "198.51.100.7,", " \t"] {
        check("B05", &client_ip, PROXY, &[("x-forwarded-for", list)], PROXY);
    }
    assert_eq!(faults(&client_ip), [1, 4, 0, 0]);
    assert_eq!(faults(&client_ip.clone()), [1, 4, 0, 0], "clones count together");
}

#[test]
fn b06_exactly_one_header_is_read() {
    let both = [("forwarded", "for=1.1.1.1"), ("x-forwarded-for", "198.51.100.7"), ("x-real-ip", "2.2.2.2")];
    check("B06", &behind_ten(), PROXY, &both, "198.51.100.7");
    check("B06", &behind_ten().forwarded(), PROXY, &both, "1.1.1.1");
    check("B06", &x_real_ip(), PROXY, &both, "2.2.2.2");
    // Nor does another stand in for the one that is missing.
    check("B06", &behind_ten(), PROXY, &[both[0], both[2]], PROXY);
    check("B06", &behind_ten().forwarded(), PROXY, &both[1..], PROXY);
    check("B06", &x_real_ip(), PROXY, &both[..2], PROXY);
}

#[test]
fn b07_an_unknown_hop_ends_the_walk_at_the_last_good_one() {
    check_list("B07", "198.51.100.7, unknown", PROXY);
    check_list("B07", "198.51.100.7, unknown, 10.1.2.3", "10.1.2.3");
    check_list("B07", "198.51.100.7, , 10.1.2.3", "10.1.2.3");
}

#[test]
fn b08_ports_and_brackets_are_no_part_of_an_address() {
    check_list("B08", "198.51.100.7:4711", "198.51.100.7");
    check_list("B08", "[2001:db8::1]:4711", "2001:db8::");
    check_list("B08", "[2001:db8::1]", "2001:db8::");
    check_list("B08", "2001:db8::1", "2001:db8::");
}

#[test]
fn b09_numbers_that_only_some_take_for_addresses_are_none() {
    for element in ["010.0.0.1", "1.2.3", "0x7f.1", "2130706433", "0.0.0.0", "::"] {
        check_list("B09", element, PROXY);
    }
}

#[test]
fn b10_spaces_and_tabs_round_commas_do_not_matter() {
    check_list("B10", "198.51.100.7\t", "198.51.100.7");
    check_list("B10", "6.6.6.6 \t,\t  198.51.100.7\t ,10.1.2.3", "198.51.100.7");
}

#[test]
fn b11_a_zone_is_no_part_of_an_address() {
    for element in ["fe80::1%eth0", "[fe80::2%1]:80", "fe80::3%25eth0"] {
        check_list("B11", element, "fe80::");
    }
}

#[test]
fn b12_a_mapped_address_is_the_address_that_it_maps() {
    for element in ["::ffff:198.51.100.7", "::ffff:c633:6407", "[::FFFF:c633:6407]:1", "198.51.100.7"] {
        check_list("B12", element, "198.51.100.7");
    }
    assert_eq!(found(&PeerIp::new(), &from("::ffff:c633:6407", &[])), Ok(address("198.51.100.7")));
}

#[test]
fn b13_mapped_peers_of_a_dual_stack_socket_are_apart() {
    let keys: HashSet<_> = (0..1_000_u32)
        .map(|n| Ipv4Addr::from(0xc633_0000 + n * 7).to_ipv6_mapped().to_string())
        .map(|peer| found(&PeerIp::new(), &from(&peer, &[])).unwrap())
        .collect();
    assert_eq!(keys.len(), 1_000);
}

#[test]
fn b14_an_address_is_mapped_by_its_bits_and_not_by_how_it_is_written() {
    check_list("B14", "2001:db8:1:2::1.2.3.4", "2001:db8:1:2::");
}

#[test]
fn b15_nat64_addresses_are_ipv4_addresses_where_that_is_set() {
    let list = [("x-forwarded-for", "64:ff9b::c633:6407")];
    check("B15", &behind_ten().nat64(), PROXY, &list, "198.51.100.7");
    check("B15", &behind_ten(), PROXY, &list, "64:ff9b::");
    let peer = from("64:ff9b::c633:6407", &[]);
    assert_eq!(found(&PeerIp::new().nat64(), &peer), Ok(address("198.51.100.7")));
    // Not a way to be a proxy, though.
    check("B15", &behind_ten().nat64(), "64:ff9b::a00:9", &list, PROXY);
    check("B15", &behind_ten().nat64(), PROXY, &[("x-forwarded-for", "64:ff9b:0:0:1::1")], "64:ff9b::");
}

#[test]
fn b16_a_proxy_is_one_in_either_form() {
    let list = [("x-forwarded-for", "198.51.100.7, ::ffff:10.1.2.3")];
    check("B16", &behind_ten(), "::ffff:10.0.0.9", &list, "198.51.100.7");
    check("B16", &ClientIp::behind(["::ffff:10.0.0.0/104"]).unwrap(), PROXY, &list, "198.51.100.7");
}

#[test]
fn b17_all_addresses_of_a_network_are_one_client() {
    let key = |n: u128| {
        let client = Ipv6Addr::from(0x2001_0db8_0001_0002_u128 << 64 | n << 48 | n).to_string();
        found(&behind_ten(), &from(PROXY, &[("x-forwarded-for", &client)])).unwrap()
    };
    let keys: HashSet<_> = (0..1 << 16).map(key).collect();
    assert_eq!(keys, HashSet::from([address("2001:db8:1:2::")]));
    let site = behind_ten().ipv6_prefix(48).unwrap();
    check("B17", &site, PROXY, &[("x-forwarded-for", "2001:db8:1:2::1")], "2001:db8:1::");
    let exact = behind_ten().ipv6_prefix(128).unwrap();
    check("B17", &exact, PROXY, &[("x-forwarded-for", "2001:db8:1:2::1")], "2001:db8:1:2::1");
}

#[test]
fn b18_a_long_list_is_right_from_the_right_and_not_walked_to_its_end() {
    let fiction = "6.6.6.6,".repeat(8_000);
    check_list("B18", &format!("{fiction}198.51.100.7, 10.1.2.3"), "198.51.100.7");
    let client_ip = behind_ten();
    for endless in ["10.1.2.3,".repeat(8_000) + "10.4.5.6", "10.4.5.6".to_owned() + &",10.1.2.3".repeat(32)] {
        check("B18", &client_ip, PROXY, &[("x-forwarded-for", &endless)], "10.1.2.3");
    }
    // Where the client's part begins is within the bounds, its end is not.
    let unbroken = format!("{}, 10.1.2.3", "6".repeat(64 * 1_024));
    check("B18", &client_ip, PROXY, &[("x-forwarded-for", &unbroken)], "10.1.2.3");
    assert_eq!(faults(&client_ip), [0, 0, 3, 0]);
    let most = "198.51.100.7".to_owned() + &",10.1.2.3".repeat(31);
    check_list("B18", &most, "198.51.100.7");
}

#[test]
fn b19_bytes_that_are_no_text_end_the_walk() {
    for garbage in [&b"198.51.100.7\x80"[..], b"\xff", b"\xc3\xa4", b"198.51.100.7\xa0"] {
        let mut parts = from(PROXY, &[]);
        parts.headers.insert("x-forwarded-for", http::HeaderValue::from_bytes(garbage).unwrap());
        assert_eq!(found(&behind_ten(), &parts), Ok(address(PROXY)), "{garbage:?}");
    }
}

#[test]
fn b20_to_b22_forwarded_is_read_as_its_rfc_says() {
    let client_ip = behind_ten().forwarded();
    for (id, line, expected) in [
        ("B20", r#"for="[2001:db8::17]:4711";proto=https"#, "2001:db8::"),
        ("B20", r#"for=6.6.6.6, for="198.51.100.7:80"; by=10.0.0.9, For=10.1.2.3"#, "198.51.100.7"),
        ("B21", r#"for=_hidden, for=198.51.100.7;by="a,b;c=\"d""#, "198.51.100.7"),
        ("B21", r#"for=198.51.100.7, for=_hidden"#, PROXY),
        ("B22", r#"for="198.51.100.7"#, PROXY),
        ("B22", "for==", PROXY),
        ("B22", ";;;", PROXY),
        ("B22", "For=198.51.100.7", "198.51.100.7"),
        ("B22", "proto=https", PROXY),
        // What a client left open does not swallow what the proxy appended.
        ("B22", r#"for="6.6.6.6, for=198.51.100.7"#, "198.51.100.7"),
    ] {
        check(id, &client_ip, PROXY, &[("forwarded", line)], expected);
    }
    let lines =
        [("forwarded", "for=6.6.6.6"), ("forwarded", "for=198.51.100.7"), ("forwarded", "for=10.1.2.3")];
    check("B20", &client_ip, PROXY, &lines, "198.51.100.7");
}

#[test]
fn b23_names_that_only_look_like_the_header_are_not_read() {
    let aliases =
        [("x_forwarded_for", "6.6.6.6"), ("x.forwarded.for", "6.6.6.6"), ("x-forwarded", "6.6.6.6")];
    check("B23", &behind_ten(), PROXY, &aliases, PROXY);
    check("B23", &x_real_ip(), PROXY, &[("x_real_ip", "6.6.6.6"), ("x.real.ip", "6.6.6.6")], PROXY);
}

#[test]
fn b24_a_header_that_a_client_had_removed_leaves_it_in_the_proxys_bucket() {
    let client_ip = x_real_ip();
    check("B24", &client_ip, PROXY, &[("connection", "X-Real-IP")], PROXY);
    assert_eq!(faults(&client_ip), [1, 0, 0, 0]);
}

#[test]
fn b25_a_single_value_that_is_there_twice_is_not_believed() {
    let client_ip = x_real_ip();
    check("B25", &client_ip, PROXY, &[("x-real-ip", "6.6.6.6"), ("x-real-ip", "198.51.100.7")], PROXY);
    check("B25", &client_ip, PROXY, &[("x-real-ip", "6.6.6.6, 198.51.100.7")], PROXY);
    check("B25", &client_ip, PROXY, &[("x-real-ip", "198.51.100.7")], "198.51.100.7");
    assert_eq!(faults(&client_ip), [0, 1, 0, 1]);
}

#[test]
fn b26_when_all_are_proxies_the_leftmost_asks_for_itself() {
    check_list("B26", "10.1.1.1, 10.2.2.2", "10.1.1.1");
}

#[test]
fn b27_without_a_peer_there_is_no_address_and_the_reason_says_what_to_do() {
    let lists = [("x-forwarded-for", "1.1.1.1")];
    for parts in
        [anonymous(&lists), from("0.0.0.0", &lists), from("::", &lists), from("::ffff:0.0.0.0", &lists)]
    {
        let missing = found(&behind_ten(), &parts).unwrap_err();
        assert!(missing.reason().contains("into_make_service_with_connect_info"), "{missing}");
        assert_eq!(missing.reject(), None);
        assert_eq!(behind_ten().address(&parts), None);
    }
    // Who says that nobody else can connect, has no need of a peer: behind a Unix socket there is none.
    assert_eq!(found(&ClientIp::hops(1).unwrap(), &anonymous(&lists)), Ok(address("1.1.1.1")));
    assert!(found(&ClientIp::hops(2).unwrap(), &anonymous(&lists)).is_err());
    let single = ClientIp::insecure_behind_anyone().header("x-real-ip").unwrap();
    assert_eq!(found(&single, &anonymous(&[("x-real-ip", "1.1.1.1")])), Ok(address("1.1.1.1")));
    assert!(found(&single, &anonymous(&[])).is_err());
}

#[test]
fn b28_of_fewer_hops_than_there_are_proxies_the_peer_is_the_client() {
    let two = ClientIp::hops(2).unwrap();
    check("B28", &two, "203.0.113.5", &[("x-forwarded-for", "1.1.1.1")], "203.0.113.5");
    assert_eq!(faults(&two), [1, 0, 0, 0]);
    let lines = [("x-forwarded-for", "6.6.6.6, 198.51.100.7"), ("x-forwarded-for", "172.16.0.1")];
    check("B28", &two, "203.0.113.5", &lines, "198.51.100.7");
    check("B28", &two, "203.0.113.5", &[("x-forwarded-for", "unknown, 172.16.0.1")], "172.16.0.1");
    check("B28", &ClientIp::hops(1).unwrap(), "203.0.113.5", &lines, "172.16.0.1");
    check("B28", &two.forwarded(), PROXY, &[("forwarded", "for=1.1.1.1, for=10.1.1.1")], "1.1.1.1");
}

#[test]
fn believing_anyone_takes_the_leftmost_address() {
    let list = [("x-forwarded-for", "6.6.6.6, 198.51.100.7")];
    check("anyone", &ClientIp::insecure_behind_anyone(), "203.0.113.5", &list, "6.6.6.6");
}

#[test]
fn a_malformed_header_can_be_refused_and_then_nothing_stands_in_for_it() {
    let list = behind_ten().on_malformed(OnMalformed::Reject);
    let single = x_real_ip().on_malformed(OnMalformed::Reject);
    let twice = [("x-real-ip", "1.1.1.1"), ("x-real-ip", "1.1.1.1")];
    let long = "10.1.2.3,".repeat(40);
    for (client_ip, headers) in [
        (&list, &[("x-forwarded-for", "198.51.100.7, unknown")][..]),
        (&list, &[("x-forwarded-for", "")]),
        (&list, &[("x-forwarded-for", &long)]),
        (&single, &twice),
    ] {
        let parts = from(PROXY, headers);
        let missing = found(&client_ip.clone().or(PeerIp::new()), &parts).unwrap_err();
        assert_eq!(missing.reject(), Some(StatusCode::BAD_REQUEST), "{headers:?}");
        assert!(missing.reason().starts_with("the forwarded address"), "{missing}");
        assert_eq!(client_ip.address(&parts), None);
    }
    // The proxy's own health checks, and peers that are no proxies, are not held to it.
    check("missing", &list, PROXY, &[], PROXY);
    check("missing", &single, PROXY, &[], PROXY);
    check("untrusted", &list, "203.0.113.5", &[("x-forwarded-for", "unknown")], "203.0.113.5");
    check("beyond", &list, PROXY, &[("x-forwarded-for", "unknown, 198.51.100.7")], "198.51.100.7");
}

#[test]
fn handlers_see_the_whole_address() {
    let parts = from(PROXY, &[("x-forwarded-for", "2001:db8:1:2:3::4")]);
    assert_eq!(behind_ten().address(&parts), Some("2001:db8:1:2:3::4".parse().unwrap()));
    let mapped = from("::ffff:198.51.100.7", &[]);
    assert_eq!(behind_ten().address(&mapped), Some("198.51.100.7".parse().unwrap()));
    assert_eq!(PeerIp::new().address(&mapped), Some("198.51.100.7".parse().unwrap()));
}
