//! What holds whatever anybody sends.

use http::HeaderValue;
use http::request::Parts;
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_core::Key;
use sluicegate_tower::ClientIp;
use sluicegate_tower::key::{ApiKey, Bearer, Cookie, HeaderKey, RequestPath};

use super::parts::{PROXY, anonymous, behind_ten, found, from};

fn with_lines(header: &'static str, lines: &[Vec<u8>]) -> Parts {
    let mut parts = from(PROXY, &[]);
    for line in lines {
        // What a server passes on: all but control characters.
        let line: Vec<u8> =
            line.iter().copied().filter(|&byte| byte == b'\t' || (byte >= b' ' && byte != 127)).collect();
        parts.headers.append(header, HeaderValue::from_bytes(&line).unwrap());
    }
    parts
}

/// Anything, but often something with the characters that matter.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let meaningful = "[ \t,;=\"\\\\:.%\\[\\]0-9a-fFfor_]{0,40}".prop_map(String::into_bytes);
    let lists =
        "((10\\.1\\.2\\.3|1\\.2\\.3\\.4|::1|for=10\\.1\\.2\\.3|for=\"\\[::1\\]:8\"|unknown|)[, ]{0,2}){0,50}";
    prop_oneof![
        meaningful,
        lists.prop_map(String::into_bytes),
        vec(any::<u8>(), 0..60),
        vec(any::<u8>(), 0..5_000)
    ]
}

/// What a proxy appends: the address of who connected to it.
fn appended() -> impl Strategy<Value = (String, String)> {
    let v4 = any::<u32>().prop_map(|bits| std::net::Ipv4Addr::from(bits).to_string());
    let v6 = any::<u128>().prop_map(|bits| std::net::Ipv6Addr::from(bits).to_string());
    prop_oneof![v4, v6].prop_map(|ip| {
        let node = if ip.contains(':') { format!("\"[{ip}]\"") } else { ip.clone() };
        (ip, format!("for={node};proto=https;by=\"_a,\\\"b\""))
    })
}

fn extractors() -> [(&'static str, ClientIp); 6] {
    [
        ("x-forwarded-for", behind_ten()),
        ("forwarded", behind_ten().forwarded()),
        ("x-real-ip", behind_ten().header("x-real-ip").unwrap()),
        ("x-forwarded-for", ClientIp::hops(3).unwrap()),
        ("forwarded", ClientIp::insecure_behind_anyone().forwarded()),
        ("x-forwarded-for", ClientIp::insecure_behind_anyone().nat64()),
    ]
}

proptest! {
    #[test]
    fn no_forwarded_header_makes_anything_panic_and_a_known_peer_always_has_a_key(lines in vec(line(), 0..4)) {
        for (header, client_ip) in extractors() {
            let parts = with_lines(header, &lines);
            prop_assert!(found(&client_ip, &parts).is_ok());
            prop_assert!(client_ip.address(&parts).is_some());
        }
    }

    #[test]
    fn what_a_client_puts_in_front_never_changes_who_it_is(
        lines in vec(line(), 0..3),
        (ip, forwarded) in appended(),
        same_line: bool,
        proxies in 0..3_usize,
    ) {
        let lists = [("x-forwarded-for", ip, "10.1.2.3"), ("forwarded", forwarded, "for=10.1.2.3")];
        for (header, client, proxy) in lists {
            let client_ip = if header == "forwarded" { behind_ten().forwarded() } else { behind_ten() };
            let hops = if header == "forwarded" { ClientIp::hops(proxies + 1).unwrap().forwarded() } else { ClientIp::hops(proxies + 1).unwrap() };
            let honest = (0..proxies).fold(client, |list, _| format!("{list}, {proxy}")).into_bytes();
            let mut lying = lines.clone();
            match lying.last_mut().filter(|_| same_line) {
                Some(last) => last.extend([b", ", &honest[..]].concat()),
                None => lying.push(honest.clone()),
            }
            let honest = with_lines(header, &[honest]);
            let lying = with_lines(header, &lying);
            // Only a client that is itself in a proxy's network could go on from there, and that is a proxy.
            let is_proxy = client_ip.address(&honest).is_some_and(|ip| ip.to_string().starts_with("10."));
            if !is_proxy {
                prop_assert_eq!(found(&client_ip, &honest), found(&client_ip, &lying));
            }
            prop_assert_eq!(found(&hops, &honest), found(&hops, &lying));
        }
    }

    #[test]
    fn an_untrusted_peer_is_itself(lines in vec(line(), 0..4), peer: u32) {
        let peer = std::net::Ipv4Addr::from(peer);
        prop_assume!(!peer.is_unspecified() && peer.octets()[0] != 10);
        for (header, client_ip) in &extractors()[..3] {
            let mut parts = from(&peer.to_string(), &[]);
            parts.headers = with_lines(header, &lines).headers;
            prop_assert_eq!(found(client_ip, &parts), Ok(Key::from(peer)));
        }
    }

    #[test]
    fn b33_different_parts_are_different_keys(a in vec(any::<[u8; 3]>(), 1..4), b in vec(any::<[u8; 3]>(), 1..4), cut in 0..3_usize) {
        // The same bytes, cut in two places: keys of text must not meet.
        let key = |parts: &[[u8; 3]]| parts.iter().map(|part| Key::from(&part[..])).reduce(Key::and).unwrap();
        prop_assert_eq!(key(&a) == key(&b), a == b);
        let bytes = a.concat();
        let at = |cut: usize| Key::from(&bytes[..cut]).and(&bytes[cut..]);
        prop_assert_ne!(at(cut), at(cut + 1));
        prop_assert_ne!(at(0), Key::from(&bytes[..]));
    }

    #[test]
    fn b31_equal_secrets_are_equal_keys_and_no_others(a in vec(any::<u8>(), 1..200), b in vec(any::<u8>(), 1..200)) {
        let api_key = ApiKey::header("x-api-key").unwrap();
        prop_assert_eq!(api_key.key_of(&a) == api_key.key_of(&b), a == b);
        prop_assert_eq!(api_key.key_of(&a), api_key.key_of(a.clone()));
    }

    #[test]
    fn nothing_that_is_sent_as_a_credential_or_path_makes_anything_panic(value in line(), path in "/[!-~]{0,60}") {
        for header in ["authorization", "cookie", "x-api-key"] {
            let parts = with_lines(header, std::slice::from_ref(&value));
            let _ = found(&Bearer::new(), &parts);
            let _ = found(&Cookie::new("a").unwrap(), &parts);
            let _ = found(&ApiKey::header("x-api-key").unwrap(), &parts);
            let _ = found(&HeaderKey::new("x-api-key").unwrap(), &parts);
        }
        if let Ok(uri) = path.parse() {
            let mut parts = anonymous(&[]);
            parts.uri = uri;
            prop_assert!(found(&RequestPath::new().lowercase(), &parts).is_ok());
        }
    }
}
