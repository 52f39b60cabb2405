//! What the keys of an extractor are: nobody may show a secret that an extractor, or a combination of them, finds.

use std::sync::{Arc, Mutex};

use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter};
use sluicegate_tests::around;
use sluicegate_tower::key::{
    ApiKey, Bearer, BearerJwt, Cookie, Extraction, HeaderKey, KeyKind, RequestMethod, RequestPath,
    RequestView, Route, extract_fn, key_fn, key_from_extension,
};
use sluicegate_tower::limits::Limits;
use sluicegate_tower::{ClientIp, KeyExtractor, Limit, PeerIp};

fn address() -> PeerIp {
    PeerIp::new()
}

fn secret() -> Bearer {
    Bearer::new()
}

#[test]
fn addresses_and_names_are_what_they_are_and_all_else_is_secret() {
    let extractors: [(&dyn KeyExtractor, KeyKind); 14] = [
        (&PeerIp::new(), KeyKind::Address),
        (&ClientIp::behind(["10.0.0.0/8"]).unwrap(), KeyKind::Address),
        (&Key::from("all"), KeyKind::Name),
        (&Route, KeyKind::Name),
        (&RequestMethod, KeyKind::Name),
        (&BearerJwt::hs256(&[7; 32]).unwrap(), KeyKind::Name),
        (&RequestPath::new(), KeyKind::Secret),
        (&HeaderKey::new("x-tenant").unwrap(), KeyKind::Secret),
        (&ApiKey::header("x-api-key").unwrap(), KeyKind::Secret),
        (&Bearer::new(), KeyKind::Secret),
        (&Cookie::new("session").unwrap(), KeyKind::Secret),
        (&key_fn(|_| Some("all")), KeyKind::Secret),
        (&extract_fn(|_| Extraction::found("all")), KeyKind::Secret),
        (&key_from_extension(|id: &u64| *id), KeyKind::Secret),
    ];
    for (index, (extractor, kind)) in extractors.iter().enumerate() {
        assert_eq!(extractor.kind(), *kind, "the extractor in place {index}");
    }
}

#[test]
fn an_extractor_that_says_nothing_has_secrets() {
    struct Own;
    impl KeyExtractor for Own {
        fn extract(&self, _: RequestView<'_>) -> Extraction {
            Extraction::found("a token")
        }
    }
    assert_eq!(Own.kind(), KeyKind::Secret);
    assert_eq!(Own.of_kind(KeyKind::Name).kind(), KeyKind::Name);
}

#[test]
fn a_combination_is_as_secret_as_its_most_secret_part() {
    assert_eq!((RequestMethod, address()).kind(), KeyKind::Address);
    assert_eq!((address(), RequestMethod).kind(), KeyKind::Address);
    assert_eq!((RequestMethod, Route).kind(), KeyKind::Name);
    assert_eq!((RequestMethod, secret(), address()).kind(), KeyKind::Secret);
    assert_eq!(address().or(secret()).kind(), KeyKind::Secret);
    assert_eq!(secret().or(address()).kind(), KeyKind::Secret);
    assert_eq!(address().or(Key::from("all")).kind(), KeyKind::Address);
    assert_eq!((secret().or(address()), RequestMethod).kind(), KeyKind::Secret);
}

#[test]
fn the_kind_survives_boxes_and_clones() {
    let named = HeaderKey::new("x-tenant").unwrap().of_kind(KeyKind::Name);
    assert_eq!(named.clone().kind(), KeyKind::Name);
    assert_eq!(Arc::new(address()).kind(), KeyKind::Address);
    let boxed: Box<dyn KeyExtractor> = Box::new(named);
    assert_eq!((boxed, address()).kind(), KeyKind::Address);
}

#[test]
fn an_extractor_of_another_kind_finds_the_same_key() {
    let request = http::Request::get("/").header("x-tenant", "acme").body(()).unwrap();
    let tenant = || HeaderKey::new("x-tenant").unwrap();
    let key = |extractor: &dyn KeyExtractor| extractor.extract((&request).into()).now().unwrap();
    assert_eq!(key(&tenant().of_kind(KeyKind::Name)), key(&tenant()));
    assert_eq!(key(&tenant()), Ok(Key::from("acme")));
}

/// The store could not say which of the keys that it keeps may be shown.
#[tokio::test]
async fn a_key_reaches_the_store_with_the_kind_that_its_extractor_says() {
    let kinds = Arc::<Mutex<Vec<KeyKind>>>::default();
    let seen = Arc::clone(&kinds);
    let store = around::around(MemoryStore::new(), move |within, asks| {
        seen.lock().unwrap().extend(asks.iter().map(|ask| ask.key().kind()));
        within.decide(asks)
    });
    let limiter = RateLimiter::new(store, Policy::gcra("api", "9/min").build().unwrap()).unwrap();
    let tenant = || HeaderKey::new("x-tenant").unwrap();
    let late = || extract_fn(|_| Extraction::pending(async { Ok(Key::from("acme")) }));
    let request = http::Request::get("/").header("x-tenant", "acme").body(()).unwrap();
    for limit in [
        Limit::new(limiter.clone()).key(tenant()),
        Limit::new(limiter.clone()).key(tenant().of_kind(KeyKind::Name)),
        Limit::new(limiter.clone()).key((tenant().of_kind(KeyKind::Name), RequestMethod)),
        Limit::new(limiter.clone()).key(late()),
        Limit::new(limiter.clone()).key(late().of_kind(KeyKind::Address)),
        // Clients without a key share one, whatever their keys are.
        Limit::new(limiter.clone()).key(HeaderKey::new("x-none").unwrap()),
    ] {
        _ = Limits::new(limit).decide(&request).await.unwrap();
    }
    let (name, address, secret) = (KeyKind::Name, KeyKind::Address, KeyKind::Secret);
    assert_eq!(*kinds.lock().unwrap(), [secret, name, name, secret, address, name]);
}
