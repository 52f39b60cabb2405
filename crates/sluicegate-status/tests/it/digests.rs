//! Keys that are digests: looked up by the text that they are made of, or not at all, and never shown as the bytes that they are.

use std::net::Ipv4Addr;

use http::{Request, StatusCode};
use serde_json::{Value, json};
use sluicegate_core::{Key, Policy};
use sluicegate_status::StatusPage;
use sluicegate_tower::key::{ApiKey, KeyKind, PeerAddr, RequestMethod, key_fn};
use sluicegate_tower::limits::{Limits, LimitsHandle};
use sluicegate_tower::{KeyExtractor, Limit, PeerIp};

use crate::support::{ORIGIN, PLANTED, SECRET, World, get, post, submit};

/// A page about a policy `partner`, with this key.
fn page(world: &World, key: impl KeyExtractor) -> (StatusPage, Limits) {
    let partner = Policy::gcra("partner", "2/min").suspend(100, "10min", "20min").on(&world.store).unwrap();
    let limits = Limits::new(Limit::new(partner).key(key));
    let page = world.page().limits("partner", LimitsHandle::new(limits.clone())).guard(|_| Some("ada"));
    (page.secret(SECRET).origin(ORIGIN).build().unwrap(), limits)
}

/// Three requests, of which the last is refused.
async fn spend(limits: &Limits, request: impl Fn() -> http::request::Builder) {
    for _ in 0..3 {
        // The last is refused.
        _ = limits.decide(&request().body(()).unwrap().into_parts().0).await;
    }
}

fn with_api_key() -> http::request::Builder {
    Request::get("/").header("x-api-key", PLANTED)
}

async fn look_up(page: &StatusPage, body: Value) -> (StatusCode, Value) {
    post(page, "/keys/look-up", &body).await
}

fn remaining(found: &Value) -> u64 {
    found["limits"][0]["quotas"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("{found}"))
}

/// It once said "passes" of an API key that was refused: text was another key than the digest.
#[tokio::test]
async fn an_api_key_is_looked_up_as_a_secret_and_as_text_there_is_no_answer() {
    let world = World::new();
    let (page, limits) = page(&world, ApiKey::header("x-api-key").unwrap().or(PeerIp::new()));
    spend(&limits, with_api_key).await;
    let (status, answer) = look_up(&page, json!({"policy": "partner", "key": PLANTED})).await;
    let said = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    assert!(said.contains("an API key or token, as \"secret\"") && said.contains("an address"), "{said}");
    assert!(!said.contains(PLANTED), "{said}");
    let (_, found) = look_up(&page, json!({"policy": "partner", "key": PLANTED, "as": "secret"})).await;
    assert_eq!(remaining(&found), 0, "{found}");
    assert!(!found.to_string().contains(PLANTED), "{found}");
    // The page's form says it the same way.
    let response = submit(&page, &format!("do=look-up&policy=partner&as=secret&key={PLANTED}")).await;
    assert!(!response.body().contains(PLANTED), "{}", response.body());
    // An address of the same limit needs no more than its text.
    let peer = || Request::get("/").extension(PeerAddr(([203, 0, 113, 9], 1).into()));
    spend(&limits, peer).await;
    let (_, found) = look_up(&page, json!({"policy": "partner", "key": "203.0.113.9"})).await;
    assert_eq!(remaining(&found), 0, "{found}");
}

#[tokio::test]
async fn an_address_is_looked_up_in_the_network_that_its_extractor_counts() {
    let world = World::new();
    let (page, limits) = page(&world, PeerIp::new());
    let peer = || Request::get("/").extension(PeerAddr("[2001:db8::17]:1".parse().unwrap()));
    spend(&limits, peer).await;
    for address in ["2001:db8::17", "2001:db8::ffff:1"] {
        let (_, found) = look_up(&page, json!({"policy": "partner", "key": address})).await;
        assert_eq!(remaining(&found), 0, "{address}: {found}");
    }
    let (_, found) = look_up(&page, json!({"policy": "partner", "key": "2001:db8:0:1::1"})).await;
    assert_eq!(remaining(&found), 2, "{found}");
}

#[tokio::test]
async fn a_key_of_several_parts_is_looked_up_as_a_request_only() {
    let world = World::new();
    let (page, limits) = page(&world, (PeerIp::new(), RequestMethod));
    spend(&limits, || Request::get("/").extension(PeerAddr(([203, 0, 113, 9], 1).into()))).await;
    let (status, answer) = look_up(&page, json!({"policy": "partner", "key": "203.0.113.9"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("several parts"), "{answer}");
    let request = json!({"limits": "partner", "peer": "203.0.113.9"});
    let (_, found) = look_up(&page, json!({ "request": request })).await;
    assert_eq!(remaining(&found), 0, "{found}");
}

#[tokio::test]
async fn where_no_limit_says_how_keys_are_written_a_key_that_nothing_is_known_of_is_not_said_to_pass() {
    let world = World::new();
    let orders = Policy::gcra("orders", "2/min").on(&world.store).unwrap();
    let page = world.guarded();
    let _ = orders.check("ada").await.unwrap();
    let (_, found) = look_up(&page, json!({"policy": "orders", "key": "ada"})).await;
    assert_eq!((&found["would_be"], remaining(&found)), (&json!("passes"), 1));
    let (_, found) = look_up(&page, json!({"policy": "orders", "key": "bob"})).await;
    let said = found["would_be"].as_str().unwrap();
    assert!(said.starts_with("passes, if ") && said.contains("limits(..)"), "{said}");
    for (read_as, problem) in [("secret", "limits(..)"), ("subject", "limits(..)")] {
        let (status, answer) = look_up(&page, json!({"policy": "orders", "key": "bob", "as": read_as})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(answer["error"].as_str().unwrap().contains(problem), "{answer}");
    }
}

/// Digests of a kind that may be shown were once written out as text.
#[tokio::test]
async fn a_digest_that_is_no_secret_is_shown_as_a_short_digest_beside_addresses_in_clear() {
    let world = World::new();
    let digest = Key::of_digest([0xab; 16]);
    let of_user = key_fn(move |request| request.headers.get("x-user").map(|_| digest.clone()));
    let (page, limits) = page(&world, of_user.of_kind(KeyKind::Name).or(PeerIp::new()));
    spend(&limits, || Request::get("/").header("x-user", "ada")).await;
    spend(&limits, || Request::get("/").extension(PeerAddr((Ipv4Addr::new(203, 0, 113, 9), 1).into()))).await;
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let partner = json["policies"].as_array().unwrap().iter().find(|it| it["name"] == "partner").unwrap();
    let mut shown: Vec<_> = partner["offenders"].as_array().unwrap().iter().collect();
    shown.sort_by_key(|offender| offender["kind"].to_string());
    assert_eq!((&shown[0]["kind"], &shown[0]["key"]), (&json!("address"), &json!("203.0.113.9")));
    assert_eq!(shown[1]["kind"], "digest", "{partner}");
    let short = shown[1]["key"].as_str().unwrap();
    assert!(short.len() == 8 && short.bytes().all(|digit| digit.is_ascii_hexdigit()), "{short}");
    let body = get(&page, "/").await.into_body();
    assert!(body.contains(&format!("digest {short}")) && !body.contains('\u{fffd}'), "{body}");
    // A look-up names it as the list does.
    let request = json!({"limits": "partner", "headers": {"x-user": "ada"}});
    let (_, found) = look_up(&page, json!({ "request": request })).await;
    assert_eq!(found["limits"][0]["key"], format!("digest {short}"), "{found}");
}
