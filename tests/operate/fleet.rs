//! The pages of four instances that share a Redis.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::{Request, StatusCode};
use serde_json::{Value, json};
use sluicegate::limiter::Overrides;
use sluicegate::observed::Observed;
use sluicegate::status::StatusPage;
use sluicegate::{Policy, RateLimiter, RedisStore, Resilient};
use sluicegate_tests::servers::Server;
use sluicegate_tests::time::on_the_hour;
use tower::ServiceExt;

struct Instance {
    observed: Observed,
    login: RateLimiter,
    page: StatusPage,
}

impl Instance {
    async fn json(&self) -> (Value, String) {
        let request = Request::get("/status.json").header("host", "localhost").body(String::new()).unwrap();
        let response = self.page.clone().oneshot(request).await.unwrap();
        let token = response.headers()["x-status-token"].to_str().unwrap().to_owned();
        (serde_json::from_str(response.body()).unwrap(), token)
    }

    async fn login(&self) -> Value {
        self.json().await.0["policies"][0].clone()
    }

    /// Sent with a token of another instance.
    async fn post(&self, path: &str, token: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::post(path)
            .header("host", "localhost")
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/json")
            .header("x-status-token", token)
            .body(body.to_string())
            .unwrap();
        let response = self.page.clone().oneshot(request).await.unwrap();
        (response.status(), serde_json::from_str(response.body()).unwrap())
    }

    /// Instead of the seconds that it takes without being told.
    async fn hear_of_overrides(&self) {
        Overrides::of(&self.observed).read().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_on_one_page_is_on_all_of_them_for_its_hour_and_any_page_acts_on_a_key_that_another_has_found()
 {
    let (server, clock) = (Server::start(), on_the_hour());
    let mut all = Vec::new();
    for number in 1..=4 {
        let redis = RedisStore::builder().deadline(Duration::from_secs(5)).clock(clock.clone());
        let redis = redis.connect(&server.url()).unwrap();
        redis.connected(Duration::from_secs(20)).await.expect("the server is up");
        let observed = Observed::named(format!("redis-{number}"), Resilient::new(redis)).unwrap();
        let login =
            Policy::sliding_log("login", "5/min").suspend(100, "10min", "30min").on(&observed).unwrap();
        let page =
            StatusPage::new(&observed).guard(|_| Some("ada")).secret([7; 32]).host("localhost").build();
        all.push(Instance { observed, login, page: page.unwrap() });
    }
    let (_, token) = all[0].json().await;
    let (status, changed) = all[1].post("/policies/login", &token, &json!({"quota": "9/min"})).await;
    assert_eq!((status, &changed["override"]["shared"]), (StatusCode::OK, &json!(true)), "{changed}");
    for instance in &all {
        instance.hear_of_overrides().await;
        let login = instance.login().await;
        assert_eq!(
            (&login["quotas"][0]["limit"], &login["override"]["by"]),
            (&json!(9), &json!("ada")),
            "{login}"
        );
    }

    let peer = Ipv4Addr::new(203, 0, 113, 9);
    for _ in 0..12 {
        let _ = all[2].login.check(peer).await.unwrap();
    }
    let word = all[2].login().await["offenders"][0]["ref"].clone();
    let (_, found) = all[3].post("/keys/look-up", &token, &json!({ "ref": word })).await;
    assert_eq!(found["limits"][0]["quotas"][0]["remaining"], 0, "{found}");
    let (_, found) = all[0].post("/keys/reset", &token, &json!({ "ref": word })).await;
    assert_eq!(found["limits"][0]["quotas"][0]["remaining"], 9, "{found}");
    all[1].post("/keys/suspend", &token, &json!({"ref": word, "for": "10min"})).await;
    assert!(!all[2].login.check(peer).await.unwrap().is_allowed());
    all[3].post("/keys/release", &token, &json!({ "ref": word })).await;
    assert!(all[2].login.check(peer).await.unwrap().is_allowed());

    clock.advance(Duration::from_secs(3_600));
    for instance in &all {
        let login = instance.login().await;
        assert_eq!((&login["quotas"][0]["limit"], &login["override"]), (&json!(5), &Value::Null), "{login}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_that_redis_is_the_cause_and_goes_on_without_it() {
    let mut server = Server::start();
    let redis = RedisStore::connect(&server.url()).unwrap();
    redis.connected(Duration::from_secs(20)).await.expect("the server is up");
    let observed = Observed::named("redis-alone", Resilient::new(redis)).unwrap();
    let login = Policy::gcra("login", "5/min").on(&observed).unwrap();
    let page = StatusPage::new(&observed).guard(|_| Some("ada")).secret([7; 32]).host("localhost").build();
    let instance = Instance { observed, login, page: page.unwrap() };
    let (json, token) = instance.json().await;
    assert_eq!(
        (&json["stores"][0]["state"], &json["stores"][0]["breaker"]),
        (&json!("ok"), &json!("closed"))
    );
    server.stop();
    for _ in 0..40 {
        let _ = instance.login.check("ada").await.unwrap();
    }
    let store = instance.json().await.0["stores"][0].clone();
    assert_eq!((&store["state"], &store["breaker"]), (&json!("fallback"), &json!("open")), "{store}");
    let failed: u64 = ["timeout", "unavailable", "protocol"]
        .iter()
        .map(|kind| store["errors"][kind].as_u64().unwrap())
        .sum();
    assert!(failed > 0 && store["fallback_decisions"].as_u64() > Some(0), "{store}");
    let (status, answer) = instance.post("/policies/login", &token, &json!({"quota": "9/min"})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    assert_eq!(instance.login().await["quotas"][0]["limit"], 5);
}
