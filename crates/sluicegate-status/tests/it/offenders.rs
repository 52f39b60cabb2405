//! The keys that are refused most: how they are shown, and what can be done about them.

use http::StatusCode;
use serde_json::{Value, json};
use sluicegate_core::Policy;

use crate::support::{PLANTED, World, get, post, submit};

const PEER: [u8; 4] = [203, 0, 113, 9];

async fn offenders(page: &sluicegate_status::StatusPage, policy: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(get(page, "/status.json").await.body()).unwrap();
    let policies = json["policies"].as_array().unwrap();
    let found = policies.iter().find(|known| known["name"] == policy).unwrap();
    found["offenders"].as_array().unwrap().clone()
}

#[tokio::test]
async fn who_was_refused_most_is_listed_and_looked_up_by_a_word_on_any_instance() {
    let world = World::new();
    let (page, other) = (world.guarded(), world.guarded());
    world.spend(PEER, 9).await;
    world.spend([198, 51, 100, 7], 6).await;
    let all = offenders(&page, "login").await;
    let first = &all[0];
    assert_eq!(
        (
            &first["key"],
            &first["kind"],
            &first["rejected"],
            &first["error"],
            &first["share"],
            &first["suspended_until"]
        ),
        (&json!("203.0.113.9"), &json!("address"), &json!(4), &json!(0), &json!(0.8), &Value::Null)
    );
    let (status, found) = post(&other, "/keys/look-up", &json!({ "ref": first["ref"] })).await;
    assert_eq!(
        (status, &found["limits"][0]["quotas"][0]["remaining"]),
        (StatusCode::OK, &json!(0)),
        "{found}"
    );
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("203.0.113.9") && body.contains("80 %"), "{body}");
    assert!(body.contains(&format!("value={}", first["ref"])), "{body}");
}

#[tokio::test]
async fn a_secret_that_is_refused_is_a_digest_and_an_address_too_where_there_is_no_guard() {
    let world = World::new();
    let secret = Policy::gcra("secret", "1/min").on(&world.store).unwrap();
    for _ in 0..5 {
        let _ = secret.check(PLANTED).await.unwrap();
        let _ = world.login.check(std::net::Ipv4Addr::from(PEER)).await.unwrap();
    }
    world.spend(PEER, 3).await;
    for (page, kind) in [(world.guarded(), "address"), (world.read_only(), "digest")] {
        assert_eq!(
            (&offenders(&page, "login").await[0]["kind"], &offenders(&page, "secret").await[0]["kind"]),
            (&json!(kind), &json!("digest"))
        );
        for path in ["/", "/status.json"] {
            let body = get(&page, path).await.into_body();
            assert!(!body.contains(PLANTED), "{body}");
            assert_eq!(body.contains("203.0.113.9"), kind == "address", "{body}");
        }
    }
    // It is looked up nevertheless.
    let word = &offenders(&world.guarded(), "secret").await[0]["ref"];
    let (_, found) = post(&world.guarded(), "/keys/look-up", &json!({ "ref": word })).await;
    assert_eq!(found["limits"][0]["quotas"][0]["remaining"], 0, "{found}");
    assert!(!found.to_string().contains(PLANTED));
}

/// "about 25,344" once stood beside keys that came three times.
#[tokio::test]
async fn in_a_flood_of_many_keys_no_number_of_the_flood_stands_beside_a_key() {
    let world = World::new();
    let flood = Policy::gcra("flood", "1/h").on(&world.store).unwrap();
    for _ in 0..3 {
        for key in 0..20_000_u32 {
            let _ = flood.check(std::net::Ipv4Addr::from(key)).await.unwrap();
        }
    }
    let page = world.guarded();
    assert_eq!(offenders(&page, "flood").await, [Value::Null; 0]);
    let body = get(&page, "/").await.into_body();
    let (_, listed) = body.split_once("Most refused keys").unwrap();
    let (listed, _) = listed.split_once("</section>").unwrap();
    assert!(listed.contains("none stands out") && !listed.contains("about"), "{listed}");
    assert!(!listed.contains("0.0."), "no key is named: {listed}");
    // One that comes again and again is.
    for _ in 0..9_000 {
        let _ = flood.check(std::net::Ipv4Addr::from(PEER)).await.unwrap();
    }
    let listed = offenders(&page, "flood").await;
    assert_eq!((listed.len(), &listed[0]["key"]), (1, &json!("203.0.113.9")), "{listed:?}");
}

#[tokio::test]
async fn a_key_is_suspended_for_a_time_and_released() {
    let world = World::new();
    let page = world.guarded();
    let strict = Policy::gcra("strict", "5/min").suspend(100, "10min", "20min").on(&world.store).unwrap();
    let key = json!({"policy": "strict", "key": "203.0.113.9"});
    let (status, found) = post(&page, "/keys/suspend", &key).await;
    let quota = &found["limits"][0]["quotas"][0];
    assert_eq!(
        (status, &quota["suspended"], &quota["back_seconds"]),
        (StatusCode::OK, &json!(true), &json!(1_200)),
        "{found}"
    );
    assert!(found["would_be"].as_str().unwrap().contains("its key is suspended by policy"), "{found}");
    let ip = std::net::Ipv4Addr::from(PEER);
    assert!(!strict.check(ip).await.unwrap().is_allowed());
    let (_, found) =
        post(&page, "/keys/suspend", &json!({"policy": "strict", "key": "203.0.113.9", "for": "2h"})).await;
    assert_eq!(found["limits"][0]["quotas"][0]["back_seconds"], 7_200);
    let response = submit(&page, "do=release&policy=strict&key=203.0.113.9").await;
    assert!(response.body().contains("the key is released"), "{}", response.body());
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let events: Vec<_> =
        json["events"].as_array().unwrap().iter().map(|event| (&event["what"], &event["by"])).collect();
    let by_ada = |what| (json!(what), json!("ada"));
    let expected = [by_ada("suspended"), by_ada("suspended"), by_ada("released")];
    assert_eq!(events, expected.iter().map(|(what, by)| (what, by)).collect::<Vec<_>>());
    let body = get(&page, "/").await.into_body();
    let suspended = "ada: suspended <strong>strict</strong> <span class=\"key\">203.0.113.9</span> → 2h";
    assert!(body.contains(suspended), "{body}");
    assert_eq!(json["events"][2]["key"], "203.0.113.9", "{json}");
    // To those who have no name it is a digest, as in the lists.
    let body = get(&world.read_only(), "/").await.into_body();
    assert!(body.contains("suspended <strong>strict</strong> <span class=\"key\">digest "), "{body}");
    assert!(!body.contains("203.0.113.9"), "{body}");
    assert!(strict.check(ip).await.unwrap().is_allowed());
    // A policy that suspends nobody says so, and a span that is none is named.
    let (status, answer) = post(&page, "/keys/suspend", &json!({"policy": "login", "key": "a"})).await;
    assert_eq!(
        (status, answer["error"].as_str().unwrap().contains("suspends no key")),
        (StatusCode::BAD_REQUEST, true)
    );
    let (status, answer) =
        post(&page, "/keys/suspend", &json!({"policy": "strict", "key": "a", "for": "soon"})).await;
    assert_eq!(
        (status, answer["error"].as_str().unwrap().contains("\"soon\"")),
        (StatusCode::BAD_REQUEST, true)
    );
}
