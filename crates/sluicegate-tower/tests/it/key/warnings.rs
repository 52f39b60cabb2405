//! What is worth a line in the log, and how many lines.

use sluicegate_core::key::KeyKind;
use sluicegate_core::{Key, MemoryStore, Policy};
use sluicegate_tests::log::lines_of;
use sluicegate_tower::key::{ApiKey, Bearer, HeaderKey};
use sluicegate_tower::{ClientIp, KeyExtractor, Limit, PeerIp, RateLimitLayer};

use super::parts::{PROXY, behind_ten, found, from};

#[test]
fn each_kind_of_fault_is_logged_once_and_repeats_nothing_that_was_sent() {
    let client_ip = behind_ten();
    let lines = lines_of(|| {
        for list in
            [&[][..], &[("x-forwarded-for", "evil\u{e4}")], &[("x-forwarded-for", "198.51.100.7")], &[]]
        {
            for _ in 0..3 {
                assert!(found(&client_ip.clone(), &from(PROXY, list)).is_ok());
            }
        }
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, part) in lines.iter().zip(["is missing", "is unreadable"]) {
        assert!(line.contains("WARN") && line.contains(part) && line.contains("x-forwarded-for"), "{line}");
        assert!(!line.contains("evil"), "{line}");
    }
    assert_eq!((client_ip.faults().missing, client_ip.faults().unreadable), (6, 3));
}

#[test]
fn a_network_with_bits_behind_its_prefix_is_worth_a_warning() {
    let lines = lines_of(|| {
        ClientIp::behind(["10.0.0.1/8", "10.0.0.0/8", "192.0.2.1", "::1"]).unwrap();
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("10.0.0.1/8") && lines[0].contains("is taken as 10.0.0.0/8"), "{lines:?}");
}

#[test]
fn a_layer_whose_keys_a_client_can_make_up_says_so_and_one_with_a_remedy_does_not() {
    let store = MemoryStore::new();
    let mut names = 0;
    let mut limit = || {
        names += 1;
        Limit::new(Policy::gcra(format!("api-{names}"), "10/min").on(&store).unwrap())
    };
    let api_key = || ApiKey::header("x-api-key").unwrap();
    let header = || HeaderKey::new("x-tenant").unwrap();
    for (case, layer, is_told) in [
        ("api key", RateLimitLayer::builder(limit().key(api_key())), true),
        ("or the peer", RateLimitLayer::builder(limit().key(api_key().or(PeerIp::new()))), true),
        ("with the peer", RateLimitLayer::builder(limit().key((PeerIp::new(), header()))), true),
        ("bearer", RateLimitLayer::builder(limit().key(Bearer::new().of_kind(KeyKind::Name))), true),
        ("two", RateLimitLayer::builder(limit().key(api_key())).and(limit().key(header())), true),
        ("beside the peer", RateLimitLayer::builder(limit().key(api_key())).and(limit()), false),
        ("verified", RateLimitLayer::builder(limit().key(api_key().verified_by(|_| true))), false),
        ("verified before", RateLimitLayer::builder(limit().key(header().verified_before())), false),
        ("peer", RateLimitLayer::builder(limit()), false),
    ] {
        let lines = lines_of(|| drop(layer.build().unwrap()));
        let told = lines.iter().filter(|line| line.contains("makes up API keys")).count();
        assert_eq!(told, usize::from(is_told), "{case}: {lines:?}");
    }
}

#[test]
fn a_key_that_is_not_a_good_one_is_none() {
    let api_key = ApiKey::header("x-api-key").unwrap();
    let caller = api_key.clone().verified_by(api_key.one_of(["good"])).or(Key::from("anyone"));
    for (shown, key) in [("good", api_key.key_of("good")), ("invented", "anyone".into())] {
        let request = http::Request::get("/").header("x-api-key", shown).body(()).unwrap();
        assert_eq!(caller.extract((&request).into()).now().unwrap(), Ok(key));
    }
}
