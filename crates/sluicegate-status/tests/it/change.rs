//! Changing a policy for a time.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{World, get, post, submit};

async fn login(page: &sluicegate_status::StatusPage) -> Value {
    let json: Value = serde_json::from_str(get(page, "/status.json").await.body()).unwrap();
    let all = json["policies"].as_array().unwrap();
    all.iter().find(|policy| policy["name"] == "login").unwrap().clone()
}

#[tokio::test]
async fn a_quota_is_changed_for_an_hour_what_was_spent_counts_and_then_it_is_back() {
    let world = World::new();
    let page = world.guarded();
    world.spend([203, 0, 113, 9], 3).await;
    assert_eq!(login(&page).await["override"], Value::Null);
    let (status, changed) = post(&page, "/policies/login", &json!({"quota": "10/min"})).await;
    assert_eq!((status, &changed["quotas"][0]["limit"]), (StatusCode::OK, &json!(10)), "{changed}");
    assert_eq!(changed, login(&page).await, "the answer is the changed part");
    let over = &changed["override"];
    assert_eq!(
        (&over["by"], &over["shared"], &over["own_quotas"]),
        (&json!("ada"), &json!(false), &json!(["5/min"]))
    );
    assert_eq!(over["until"], "2023-11-14T23:00:00.000Z");
    let key = std::net::Ipv4Addr::new(203, 0, 113, 9);
    assert_eq!(world.login.peek(key).await.unwrap().remaining(), 7);
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("by ada until") && body.contains("this instance only"), "{body}");
    assert!(body.contains("ada: quota changed") || body.contains("quota changed"), "{body}");
    world.clock.advance(Duration::from_secs(3_600));
    assert_eq!(
        (&login(&page).await["override"], &login(&page).await["quotas"][0]["limit"]),
        (&Value::Null, &json!(5))
    );
}

/// Nothing is remembered of the keys of a policy that is not tightened, so this holds for none of them.
#[tokio::test]
async fn quotas_for_new_keys_are_a_change_of_the_policy_that_is_shown_replaced_and_withdrawn_as_one() {
    let world = World::new();
    let page = world.guarded();
    let body = json!({"quota": "2/min", "keys": "new"});
    let (status, changed) = post(&page, "/policies/login", &body).await;
    assert_eq!((status, &changed["override"]["new_keys"]), (StatusCode::OK, &json!(["2/min"])), "{changed}");
    assert_eq!(changed["quotas"][0]["limit"], 5);
    assert!(get(&page, "/").await.body().contains("new keys have 2/min by ada until"));
    let body = json!({"quota": "3/min", "version": changed["override"]["version"]});
    let (_, changed) = post(&page, "/policies/login", &body).await;
    assert_eq!(changed["override"]["new_keys"], json!(["3/min"]), "{changed}");
    let (status, answer) = post(&page, "/policies/login", &json!({"quota": "2/min", "keys": "old"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let response = submit(&page, "do=all-to-shadow&confirm=yes").await;
    assert_eq!(response.status(), StatusCode::OK, "{}", response.body());
    let (mode, over) = (&login(&page).await["mode"], &login(&page).await["override"]);
    assert_eq!((mode, &over["new_keys"]), (&json!("shadow"), &Value::Null));
}

#[tokio::test]
async fn the_second_of_two_operators_sees_what_the_first_has_done() {
    let world = World::new();
    let page = world.guarded();
    let (_, first) = post(&page, "/policies/login", &json!({"quota": "10/min", "for": "30min"})).await;
    let version = &first["override"]["version"];
    let (status, answer) = post(&page, "/policies/login", &json!({"quota": "7/min"})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(answer["error"].as_str().unwrap().contains("login: 10/min, by ada"), "{answer}");
    let (status, second) =
        post(&page, "/policies/login", &json!({"quota": "7/min", "version": version})).await;
    assert_eq!((status, &second["quotas"][0]["limit"]), (StatusCode::OK, &json!(7)), "{second}");
    // The form carries it as digits.
    let version = &second["override"]["version"];
    let response = submit(&page, &format!("do=withdraw&policy=login&version={version}")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.body().contains("login: the override is withdrawn"), "{}", response.body());
    assert_eq!(login(&page).await["quotas"][0]["limit"], 5);
}

#[tokio::test]
async fn a_change_that_cannot_be_kept_is_refused_names_the_value_and_changes_nothing() {
    let world = World::new();
    let page = world.guarded();
    for (name, body, problem) in [
        ("login", json!({"quota": "five/min"}), "\"five/min\" is not a quota"),
        ("login", json!({"quota": "0/min"}), "0"),
        ("login", json!({"quota": "5/min burst 9"}), "burst"),
        (
            "login",
            json!({"quota": "9007199254740993/min"}),
            "9007199254740993/min cannot be kept in exact integers",
        ),
        ("login", json!({}), "changes nothing"),
        ("login", json!({"quota": "9/min", "for": "0s"}), "\"0s\" is not a time"),
        ("login", json!({"quota": "9/min", "for": "90d"}), "90d"),
        ("login", json!({"quota": "9/min", "for": "soon"}), "\"soon\" is not a time"),
        ("login", json!({"quota": "9/min", "version": "x"}), "the version is not a whole number"),
        ("login", json!({"mode": "sleep"}), "\"sleep\""),
        ("login", json!({"quota": "9/min", "until": "soon"}), "\"soon\" is not a moment"),
        ("login", json!({"quota": "9/min", "until": "2001-01-01T00:00:00Z"}), "is over before it begins"),
        ("logout", json!({"quota": "9/min"}), "no policy named \"logout\""),
        ("login", json!({"do": "withdraw"}), "say by its version"),
    ] {
        let (status, answer) = post(&page, &format!("/policies/{name}"), &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(problem), "{answer}");
        assert_eq!(login(&page).await["quotas"][0]["limit"], 5);
    }
    let (status, _) = post(&page, "/policies/login", &json!({"do": "withdraw", "version": 7})).await;
    assert_eq!(status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_policy_is_switched_off_until_a_moment_and_keeps_its_quota() {
    let world = World::new();
    let page = world.guarded();
    let body = json!({"mode": "off", "until": "2023-11-14T22:10:00Z"});
    let (status, changed) = post(&page, "/policies/login", &body).await;
    assert_eq!((status, &changed["mode"]), (StatusCode::OK, &json!("off")), "{changed}");
    let over = &changed["override"];
    assert_eq!((&over["until"], &over["own_mode"]), (&json!("2023-11-14T22:10:00.000Z"), &json!("enforce")));
    let (_, found) = post(&page, "/keys/look-up", &json!({"policy": "login", "key": "a"})).await;
    assert_eq!(found["limits"][0]["not_asked"], "the policy is off");
    world.clock.advance(Duration::from_secs(600));
    assert_eq!(login(&page).await["mode"], "enforce");
}

#[tokio::test]
async fn what_an_operator_leaves_as_it_is_stays_so() {
    let world = World::new();
    let page = world.guarded();
    let (_, first) = post(&page, "/policies/login", &json!({"mode": "shadow"})).await;
    let seen = &first["override"]["version"];
    let (_, second) = post(&page, "/policies/login", &json!({"quota": "7/min", "version": seen})).await;
    assert_eq!((&second["mode"], &second["quotas"][0]["limit"]), (&json!("shadow"), &json!(7)), "{second}");
    let seen = &second["override"]["version"];
    let (_, third) = post(&page, "/policies/login", &json!({"mode": "enforce", "version": seen})).await;
    assert_eq!((&third["mode"], &third["quotas"][0]["limit"]), (&json!("enforce"), &json!(7)), "{third}");
}

#[tokio::test]
async fn all_policies_go_to_shadow_by_one_button_that_has_to_be_meant() {
    let world = World::new();
    let page = world.guarded();
    post(&page, "/policies/login", &json!({"quota": "10/min"})).await;
    let unconfirmed = submit(&page, "do=all-to-shadow").await;
    assert_eq!(unconfirmed.status(), StatusCode::BAD_REQUEST);
    assert_eq!(login(&page).await["mode"], "enforce");
    let response = submit(&page, "do=all-to-shadow&confirm=yes&for=5min").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(
        response.body().contains("no policy refuses requests: all are in shadow mode"),
        "{}",
        response.body()
    );
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let modes = json["policies"].as_array().unwrap().iter().map(|policy| policy["mode"].clone());
    assert!(modes.into_iter().all(|mode| mode == "shadow"), "{json}");
    assert_eq!(login(&page).await["quotas"][0]["limit"], 10, "what an operator has made of a quota stays");
    let again = submit(&page, "do=all-to-shadow&confirm=yes").await;
    assert_eq!(again.status(), StatusCode::CONFLICT);
    world.clock.advance(Duration::from_secs(300));
    assert_eq!(
        (&login(&page).await["mode"], &login(&page).await["quotas"][0]["limit"]),
        (&json!("enforce"), &json!(5))
    );
}
