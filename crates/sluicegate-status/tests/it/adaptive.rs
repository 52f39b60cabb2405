//! Limits that adapt: where they stand, and how the last hour was.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_core::policy::PolicyMode;
use sluicegate_in_flight::adaptive::{LimitAlgorithm, Outcome};
use sluicegate_in_flight::{Class, InFlight};

use crate::support::{World, get};

#[tokio::test]
async fn limits_that_adapt_are_listed_with_their_last_hour_and_all_others_are_not() {
    let world = World::new();
    let fixed = InFlight::new("uploads", 2).unwrap();
    let builder = InFlight::adaptive("api").algorithm(LimitAlgorithm::Aimd).first(1).at_most(2);
    let api = builder.wait_up_to(Duration::ZERO).clock(world.clock.clone()).build().unwrap();
    let tried = InFlight::adaptive("tried").mode(PolicyMode::Shadow).at_most(1).build().unwrap();
    [&fixed, &api, &tried].into_iter().for_each(|limit| world.store.in_flight(limit));

    api.try_acquire("ada").unwrap().answered(Outcome::Error);
    world.clock.advance(Duration::from_secs(10));
    let first = api.try_acquire("ada").unwrap();
    assert!(api.request("ada").class(Class::Sheddable).try_acquire().is_err());
    world.clock.advance(Duration::from_millis(200));
    first.answered(Outcome::Good);
    world.clock.advance(Duration::from_secs(180));
    let held = [(); 2].map(|()| tried.try_acquire("ada").unwrap());

    let page = world.guarded();
    let document: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let mut limits = document["adaptive"].as_array().unwrap().clone();
    assert_eq!(limits.len(), 2, "a number that is fixed has no place here");
    let minutes = limits[0].as_object_mut().unwrap().remove("minutes").unwrap();
    let nothing = json!({"critical_plus": 0, "critical": 0, "sheddable_plus": 0, "sheddable": 0});
    assert_eq!(
        limits[0],
        json!({"name": "api", "algorithm": "aimd", "mode": "enforce", "at_least": 1, "at_most": 2, "limit": 2,
            "in_flight": 1, "latency_ms": 200.704, "waiting": nothing, "would_shed": nothing,
            "shed": {"critical_plus": 0, "critical": 0, "sheddable_plus": 0, "sheddable": 1}})
    );
    assert_eq!(minutes.as_array().unwrap().len(), 60);
    assert_eq!((&minutes[56], &minutes[59]), (&json!({"limit": 2, "latency_ms": 200.704}), &Value::Null));
    assert_eq!(limits[1]["would_shed"]["critical"], 1);
    let body = get(&page, "/").await.into_body();
    for shown in [
        "Limits that adapt",
        ">1 of 2<",
        ">201 ms<",
        ">0 <small>1 if it were enforced<",
        "(shadow)",
        "latency of api as a table",
    ] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    drop(held);
    assert!(!get(&World::new().guarded(), "/").await.body().contains("Limits that adapt"));
}
