//! A store that does not answer, and limits that no store decides: the page tells them apart from refusals of clients.

use std::sync::Arc;

use http::Request;
use serde_json::{Value, json};
use sluicegate_core::store::{Event, Subject, Undecided};
use sluicegate_core::{OnOutage, Policy, Quota, RateLimiter, Store};
use sluicegate_in_flight::InFlight;
use sluicegate_observed::Observed;
use sluicegate_status::StatusPage;
use sluicegate_tests::outages::{FAILS, Scene, admitted};
use sluicegate_tests::process::alone;

use crate::support::{ORIGIN, SECRET, World, get, post, send, submit};

/// A page that was called ok, with old times of answers, while its store was away, and said of no policy what it did.
#[tokio::test]
async fn in_an_outage_each_policy_says_what_it_does_and_the_store_when_it_last_answered() {
    let scene = Scene::new(|builder| builder);
    let store = Observed::named("away", &scene.store).unwrap();
    let page = StatusPage::new(&store).guard(|_| Some("ada")).secret(SECRET).origin(ORIGIN).build().unwrap();
    let policies = [
        ("a-local", OnOutage::Local, "this instance's quarter of 100/min"),
        ("b-allow", OnOutage::Allow, "lets all requests in, uncounted"),
        ("c-deny", OnOutage::Deny, "refuses all requests (503)"),
        ("d-quota", OnOutage::Quota(Quota::per_second(20)), "20/s, counted by this instance alone"),
    ];
    let opened: Vec<RateLimiter> = policies
        .iter()
        .map(|(name, outage, _)| Policy::gcra(*name, "100/min").on_outage(*outage).on(&store).unwrap())
        .collect();
    let json = async || -> Value { serde_json::from_str(get(&page, "/status.json").await.body()).unwrap() };
    // One in 64 is timed.
    for limiter in &opened {
        assert_eq!(admitted(limiter, "ada", 90), 90);
    }
    let before = json().await;
    assert!(before["policies"][0].get("in_outage").is_none() && before["stores"][0]["state"] == "ok");
    scene.mood(FAILS);
    for limiter in &opened {
        let _ = admitted(limiter, "bob", 10);
    }
    let during = json().await;
    let store = &during["stores"][0];
    assert_eq!(
        (&store["state"], &store["opened"], &store["replicas"]),
        (&json!("fallback"), &json!(1), &json!(4))
    );
    assert!(store["answered_at"].is_string(), "{store}");
    for (policy, (_, _, now)) in during["policies"].as_array().unwrap().iter().zip(policies) {
        assert_eq!(policy["in_outage"], now);
    }
    let denied = &during["policies"][2]["minute"];
    assert_eq!((&denied["rejected"], &denied["outage"]), (&json!(0), &json!(10)));
    let outage = &during["events"][0];
    assert_eq!((&outage["what"], &outage["to"]), (&json!("outage"), &json!("the store cannot be reached")));
    assert_eq!(outage.get("until"), None);
    let body = get(&page, "/").await.into_body();
    for shown in [
        "now: this instance's quarter of 100/min",
        "in fallback</span>, breaker open: it is not asked, last answer at ",
        "until then 99 of 100 answers within ",
        "Look-ups show what this instance knows: away gives no answers.",
        "refused by the outage",
        "outage, which lasts: the store cannot be reached; ",
        "1 key whose spending away has not been told yet",
    ] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    assert!(!body.contains("Look-ups are answered by the store"), "{body}");
    let (_, found) = post(&page, "/keys/look-up", &json!({"policy": "a-local", "key": "bob"})).await;
    assert!(found["limits"][0]["note"].as_str().unwrap().starts_with("as this instance knows it"), "{found}");
}

/// A key that is refused again and again, and has room in between, was said to pass, without its name and without a reason.
#[tokio::test]
async fn a_look_up_names_its_key_and_says_how_often_it_was_refused_just_now() {
    let world = World::new();
    let page = world.guarded();
    world.spend([203, 0, 113, 9], 31).await;
    world.clock.advance(std::time::Duration::from_secs(120));
    let (_, found) = post(&page, "/keys/look-up", &json!({"policy": "login", "key": "203.0.113.9"})).await;
    assert_eq!((&found["would_be"], &found["limits"][0]["refused"]), (&json!("passes"), &json!(26)));
    let body = submit(&page, "do=look-up&policy=login&key=203.0.113.9").await.into_body();
    let said = "<span class=\"key\">203.0.113.9</span> passes.";
    assert!(body.contains(said) && body.contains("refused here 26 times in the last 10 minutes"), "{body}");
    let (_, found) = post(&page, "/keys/look-up", &json!({"policy": "login", "key": "203.0.113.10"})).await;
    assert_eq!(found["limits"][0].get("refused"), None);
}

/// In a process that has no other store: the first one counts permits that nobody has told it of.
#[test]
fn refusals_of_limits_at_once_and_refusals_without_a_decision_are_on_the_page_without_being_registered() {
    alone(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let before = InFlight::new("before", 1).unwrap();
            let world = World::new();
            // A policy of that name is another limit.
            let login = InFlight::new("login", 1).unwrap();
            world.spend([203, 0, 113, 9], 7).await;
            for limit in [&before, &login] {
                let permit = limit.try_acquire("ada").unwrap();
                (0..20).for_each(|_| drop(limit.try_acquire("ada")));
                drop(permit);
            }
            let as_store: Arc<dyn Store> = (&world.store).into();
            as_store.notice(&Event::Undecided(Subject::default(), Undecided::MissingKey));
            world.clock.advance(std::time::Duration::from_secs(1));
            let page = world.read_only();
            let shown = async |path: &str| send(&page, Request::get(path), "").await.into_body();
            let json: Value = serde_json::from_str(&shown("/status.json").await).unwrap();
            let limits = json["in_flight"].as_array().unwrap();
            assert_eq!(limits.iter().map(|limit| &limit["name"]).collect::<Vec<_>>(), ["before", "login"]);
            for limit in limits {
                let counts = ["allowed", "rejected"].map(|result| limit["totals"][result].as_u64().unwrap());
                assert_eq!((counts, &limit["per_second"]["rejected"]), ([1, 20], &json!(2.0)), "{limit}");
            }
            assert_eq!(json["policies"][1]["per_second"]["rejected"], 0.2);
            assert_eq!(json["stores"][0]["undecided"], json!({"missing_key": 1}));
            let body = shown("/").await;
            for shown in [
                "before refuses 2.0 a second because its permits are in use; login refuses 2.0 a second; ",
                "<h2 id=\"at-once\">Requests at once</h2>",
                "requests that it was not asked about: 1 missing key",
            ] {
                assert!(body.contains(shown), "{shown}: {body}");
            }
        });
    });
}
