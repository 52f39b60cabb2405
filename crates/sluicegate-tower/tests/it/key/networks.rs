//! Lists of who is exempt or kept out.

use sluicegate_tower::key::{ApiKey, Bearer, Cookie, Networks, OnMalformed};
use sluicegate_tower::{ClientIp, PeerIp};

use super::parts::{PROXY, anonymous, behind_ten, from};

#[test]
fn a_list_of_networks_knows_the_client_and_not_its_proxy() {
    let list = || Networks::new(["198.51.100.0/24", "2001:db8::/32", "10.0.0.0/8"]).unwrap();
    let within = behind_ten().within(list());
    let outside = behind_ten().outside(list());
    for (client, is_within) in
        [("198.51.100.7", true), ("2001:db8::7", true), ("203.0.113.5", false), ("::ffff:198.51.100.7", true)]
    {
        let parts = from(PROXY, &[("x-forwarded-for", client)]);
        assert_eq!((within((&parts).into()), outside((&parts).into())), (is_within, !is_within), "{client}");
    }
    // Whoever is not behind the proxy cannot write himself onto a list.
    let liar = from("203.0.113.5", &[("x-forwarded-for", "198.51.100.7")]);
    assert!(!within((&liar).into()) && outside((&liar).into()));
    let peers = PeerIp::new().within(list());
    assert!(peers((&from(PROXY, &[("x-forwarded-for", "203.0.113.5")])).into()) && !peers((&liar).into()));
    assert!(PeerIp::new().outside(list())((&liar).into()));
}

#[test]
fn an_unknown_client_is_neither_within_nor_outside() {
    // Once the proxy's own address stood in for it, which is usually on the list of those who are exempt.
    let list = || Networks::new(["10.0.0.0/8"]).unwrap();
    let endless = "10.1.2.3,".repeat(40);
    let address = || behind_ten();
    let single = || behind_ten().header("x-real-ip").unwrap();
    let hops = || ClientIp::hops(2).unwrap();
    for (client_ip, headers) in [
        (address(), &[][..]),
        (address(), &[("x-forwarded-for", "")]),
        (address(), &[("x-forwarded-for", "unknown")]),
        (address(), &[("x-forwarded-for", "198.51.100.7, _hidden, 10.1.2.3")]),
        (address(), &[("x-forwarded-for", &endless)]),
        (address().forwarded(), &[("forwarded", "for=unknown")]),
        (address().forwarded(), &[("x-forwarded-for", "198.51.100.7")]),
        (single(), &[]),
        (single(), &[("x-real-ip", "10.1.2.3, 10.1.2.3")]),
        (single(), &[("x-real-ip", "10.1.2.3"), ("x-real-ip", "10.1.2.3")]),
        (hops(), &[("x-forwarded-for", "10.1.2.3")]),
    ] {
        for action in [OnMalformed::UseHop, OnMalformed::Reject] {
            let client_ip = client_ip.clone().on_malformed(action);
            for parts in [from(PROXY, headers), anonymous(headers)] {
                assert!(!client_ip.within(list())((&parts).into()), "{headers:?}");
                assert!(!client_ip.outside(list())((&parts).into()), "{headers:?}");
            }
        }
    }
    let (within, outside) = (PeerIp::new().within(list()), PeerIp::new().outside(list()));
    assert!(!within((&anonymous(&[])).into()) && !outside((&anonymous(&[])).into()));
    // A caller inside, behind the proxy, is known.
    let internal = from(PROXY, &[("x-forwarded-for", "10.1.2.3")]);
    assert!(
        behind_ten().within(list())((&internal).into()) && !behind_ten().outside(list())((&internal).into())
    );
}

#[test]
fn a_list_of_secrets_knows_those_who_show_one() {
    let api_key = ApiKey::header("x-api-key").unwrap().one_of(["k1", "k2"]);
    let bearer = Bearer::new().one_of(vec!["k1".to_owned()]);
    let cookie = Cookie::new("session").unwrap().one_of([b"k1"]);
    for (header, value, known) in [
        ("x-api-key", "k1", [true, false, false]),
        ("x-api-key", "k2", [true, false, false]),
        ("x-api-key", "K1", [false; 3]),
        ("x-api-key", "", [false; 3]),
        ("authorization", "Bearer k1", [false, true, false]),
        ("authorization", "Basic k1", [false; 3]),
        ("cookie", "session=k1", [false, false, true]),
        ("cookie", "other=k1", [false; 3]),
    ] {
        let parts = anonymous(&[(header, value)]);
        assert_eq!(
            [api_key((&parts).into()), bearer((&parts).into()), cookie((&parts).into())],
            known,
            "{header}: {value}"
        );
    }
    assert!(!api_key((&anonymous(&[("x-api-key", "k1"), ("x-api-key", "k3")])).into()));
}
