//! `/v1/check` and `/v1/peek`: by name, together, as a request, in a batch.

use http::Method;
use serde_json::json;
use sluicegate_tower::key::PeerAddr;

use crate::support::{RULES, Served};

#[tokio::test]
async fn a_check_by_name_spends_and_a_refusal_says_when_to_come_back() {
    let served = Served::start().await;
    let check = json!({ "policy": "login", "key": "192.0.2.7" });
    let first = served.ask("/v1/check", check.clone()).await;
    assert_eq!((first.status, first.remaining()), (200, 1));
    assert_eq!(first.field("x-ratelimit-remaining"), "1");
    assert_eq!(first.body["decided_by"], "store");
    assert_eq!(served.ask("/v1/check", check.clone()).await.status, 200);

    let refused = served.ask("/v1/check", check.clone()).await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, "12"));
    assert_eq!(refused.field("content-type"), "application/problem+json");
    assert_eq!(refused.field("ratelimit"), "\"login\";r=0;t=12");
    assert_eq!(refused.body["violated-policies"], json!(["login"]));

    served.clock.advance(std::time::Duration::from_secs(12));
    assert_eq!(served.ask("/v1/check", check).await.status, 200, "and then it may");
}

#[tokio::test]
async fn a_refusal_has_the_status_of_the_policy_or_of_the_rule() {
    let rules = "
version: 1
policies:
  mail: { quota: 1/h, status: 503 }
  page: { quota: 1/h }
rules: [{ name: page, only_if: { path: /page }, limit: page, key: everybody, status: 451 }]
";
    let served = Served::with(rules, |builder| builder).await;
    let request = |path| json!({ "request": { "path": path } });
    let mail = json!({ "policy": "mail", "key": "ada" });
    assert_eq!(served.ask("/v1/check", mail.clone()).await.status, 200);
    let refused = served.ask("/v1/check", mail.clone()).await;
    assert_eq!((refused.status, &refused.body["status"]), (503, &json!(503)));
    let batch = served.ask("/v1/check", json!({ "batch": [mail] })).await;
    assert_eq!(batch.body["answers"][0]["status"], 503);
    for (call, status) in [("/v1/check", 200), ("/v1/check", 451), ("/v1/reserve", 451)] {
        assert_eq!(served.ask(call, request("/page")).await.status, status, "{call}");
    }
}

#[tokio::test]
async fn a_cost_that_never_fits_is_no_matter_of_waiting() {
    let served = Served::start().await;
    let refused = served.ask("/v1/check", json!({ "policy": "login", "key": "192.0.2.7", "cost": 3 })).await;
    assert_eq!((refused.status, refused.field("retry-after")), (403, ""));
}

#[tokio::test]
async fn several_checks_spend_all_or_none() {
    let served = Served::start().await;
    let both = |cost| {
        json!({ "checks": [
        { "policy": "mail", "key": "ada", "cost": cost },
        { "policy": "login", "key": { "address": "192.0.2.7" } },
    ] })
    };
    assert_eq!(served.ask("/v1/check", both(4)).await.status, 200);
    assert_eq!(served.ask("/v1/check", both(7)).await.status, 429, "six are left");
    let left = |policy, key: serde_json::Value| {
        let call = json!({ "policy": policy, "key": key, "cost": 0 });
        async { served.ask("/v1/peek", call).await.remaining() }
    };
    assert_eq!((left("mail", json!("ada")).await, left("login", json!("192.0.2.7")).await), (6, 1));
    let twice = json!({ "checks": [{ "policy": "mail", "key": "a" }, { "policy": "mail", "key": "b" }] });
    let wrong = served.ask("/v1/check", twice).await;
    assert!(wrong.status == 400 && wrong.detail().contains("\"mail\" occurs twice"), "{wrong:?}");
}

#[tokio::test]
async fn a_peek_spends_nothing_and_is_never_refused() {
    let served = Served::start().await;
    let call = |cost| json!({ "policy": "mail", "key": "ada", "cost": cost });
    for _ in 0..3 {
        let looked = served.ask("/v1/peek", call(1)).await;
        assert_eq!((looked.status, looked.remaining(), &looked.body["allowed"]), (200, 10, &json!(true)));
    }
    assert_eq!(served.ask("/v1/check", call(10)).await.status, 200);
    let looked = served.ask("/v1/peek", call(1)).await;
    assert_eq!((looked.status, &looked.body["allowed"]), (200, &json!(false)));
    assert_eq!(looked.body["retry_after"], 360);
}

#[tokio::test]
async fn a_described_request_meets_the_rules_as_one_that_comes_through_the_layer() {
    let served = Served::start().await;
    let described = json!({ "request": { "method": "POST", "path": "/login", "peer": "192.0.2.7" } });
    let answered = served.ask("/v1/check", described.clone()).await;
    assert_eq!((answered.status, answered.remaining()), (200, 1));
    assert_eq!(answered.body["limits"][0]["policy"], "login", "the policy in shadow has no say");

    // The same bucket as that of a request in this process, and of a check by name.
    let peer = PeerAddr("192.0.2.7:4711".parse().unwrap());
    let request =
        http::Request::builder().method(Method::POST).uri("/login").extension(peer).body(()).unwrap();
    assert!(served.rules.limits().decide(&request).await.is_ok());
    let named = served.ask("/v1/check", json!({ "policy": "login", "key": "192.0.2.7" })).await;
    assert_eq!(named.status, 429);
    let refused = served.ask("/v1/check", described).await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, "12"));
}

#[tokio::test]
async fn rules_that_ask_no_limit_answer_in_their_own_way() {
    let served = Served::start().await;
    for (path, headers, status) in [
        ("/internal/x", json!({}), 403),
        ("/members/7", json!({}), 401),
        ("/members/7", json!({ "x-user": ["ada"] }), 200),
        ("/health", json!({}), 200),
        ("/elsewhere", json!({}), 200),
    ] {
        for verb in ["/v1/check", "/v1/peek", "/v1/reserve"] {
            let call = json!({ "request": { "path": path, "headers": headers, "peer": "192.0.2.7:9" } });
            let answered = served.ask(verb, call).await;
            assert_eq!(answered.status, status, "{verb} {path}: {answered:?}");
        }
    }
    let free = served.ask("/v1/check", json!({ "request": { "path": "/health" } })).await;
    assert_eq!((&free.body["decided_by"], &free.body["limits"]), (&json!("none"), &json!([])));
}

#[tokio::test]
async fn clients_learn_nothing_of_a_hidden_policy() {
    let served = Served::start().await;
    let check = json!({ "policy": "shown", "key": "ada", "cost": 3 });
    let passed = served.ask("/v1/check", check.clone()).await;
    assert_eq!((passed.status, &passed.body["limits"], passed.field("ratelimit")), (200, &json!([]), ""));
    let refused = served.ask("/v1/check", check).await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, "60"));
    assert!(!refused.body.to_string().contains("shown"), "{refused:?}");
}

#[tokio::test]
async fn questions_of_a_batch_are_answered_each_for_itself_and_in_their_order() {
    let served = Served::start().await;
    let login = json!({ "policy": "login", "key": "192.0.2.7" });
    let batch = json!({ "batch": [
        login,
        login,
        login,
        { "policy": "nothing", "key": "ada" },
        { "checks": [{ "policy": "mail", "key": "ada" }] },
        { "request": { "path": "/internal/x" } },
    ] });
    let answered = served.ask("/v1/check", batch).await;
    let answers = answered.body["answers"].as_array().unwrap();
    let statuses: Vec<_> = answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 429, 404, 200, 403]);
    assert_eq!(answers[2]["retry_after"], 12);
    assert!(answers[3]["detail"].as_str().unwrap().contains("no policy \"nothing\""));
    assert_eq!(answers[4]["limits"][0]["remaining"], 9);
}

#[tokio::test]
async fn a_key_is_read_as_rules_find_it() {
    let served = Served::start().await;
    let remaining = async |policy: &str, key: serde_json::Value| {
        served.ask("/v1/check", json!({ "policy": policy, "key": key })).await
    };
    // An address of a policy whose rules count addresses, in whatever way it is written.
    assert_eq!(remaining("login", json!("192.0.2.7")).await.remaining(), 1);
    assert_eq!(remaining("login", json!({ "address": "::ffff:192.0.2.7" })).await.remaining(), 0);
    let wrong = remaining("login", json!("ada")).await;
    assert!(wrong.status == 400 && wrong.detail().contains("an address"), "{wrong:?}");
    // A text of one that rules know by a header field, and of one that none of them names.
    for policy in ["mail", "turns"] {
        assert_eq!(remaining(policy, json!("7")).await.status, 200);
        assert_eq!(
            remaining(policy, json!({ "text": "7" })).await.status,
            if policy == "mail" { 200 } else { 429 }
        );
    }
    assert_eq!(remaining("turns", json!(["a", "b"])).await.status, 200);
    assert_eq!(remaining("turns", json!(["a", "b"])).await.status, 429);
    assert_eq!(remaining("turns", json!(["ab"])).await.status, 200);
    for wrong in [json!(""), json!([]), json!({}), json!({ "text": "a", "address": "b" })] {
        assert_eq!(remaining("turns", wrong.clone()).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_key_has_the_quotas_that_the_file_gives_it_and_a_receipt_knows_them() {
    let rules =
        RULES.replace("{ quota: 10/h }", "{ quota: 10/h, overrides: { acme: 100/h, staff: unlimited } }");
    let served = Served::with(&rules, |builder| builder).await;
    let of = |key: &str| json!({ "policy": "mail", "key": key, "cost": 4 });
    assert_eq!(served.ask("/v1/check", of("ada")).await.remaining(), 6);
    assert_eq!(served.ask("/v1/check", of("acme")).await.remaining(), 96);
    let request = json!({ "request": { "path": "/members/7", "headers": { "x-user": "acme" } } });
    assert_eq!(served.ask("/v1/check", request).await.remaining(), 95, "the same bucket");
    let reserved = served.ask("/v1/reserve", of("acme")).await;
    assert_eq!(served.ask("/v1/refund", json!({ "receipt": reserved.receipt() })).await.remaining(), 95);
    let free = served.ask("/v1/check", of("staff")).await;
    assert_eq!((free.status, &free.body["limits"]), (200, &json!([])));
}

#[tokio::test]
async fn what_is_wrong_with_a_question_is_said() {
    let served = Served::start().await;
    for (path, call, status, said) in [
        ("/v1/check", json!({}), 400, "exactly one of"),
        ("/v1/check", json!({ "policy": "login" }), 400, "\"key\" is missing"),
        ("/v1/check", json!({ "policy": "logins", "key": "a" }), 404, "no policy \"logins\""),
        ("/v1/check", json!({ "policy": "sluicegate-receipts", "key": "a" }), 404, "no policy"),
        ("/v1/check", json!({ "policy": "mail", "key": "a", "wait": "1s" }), 400, "\"wait\" has no meaning"),
        (
            "/v1/check",
            json!({ "policy": "mail", "key": "a", "request": { "path": "/" } }),
            400,
            "exactly one of",
        ),
        ("/v1/check", json!({ "checks": [] }), 400, "is empty"),
        (
            "/v1/check",
            json!({ "checks": [{ "policy": "mail", "key": "a" }], "cost": 2 }),
            400,
            "belong beside",
        ),
        ("/v1/check", json!({ "batch": [], "policy": "mail" }), 400, "stands alone"),
        ("/v1/check", json!({ "request": { "path": "no path" } }), 400, "is not a path"),
        ("/v1/check", json!({ "request": { "path": "/", "peer": "somebody" } }), 400, "is not an address"),
        (
            "/v1/check",
            json!({ "request": { "path": "/", "headers": { "a b": "c" } } }),
            400,
            "name of a header field",
        ),
        ("/v1/reserve", json!({ "policy": "mail", "key": "a", "wait": "soon" }), 400, "is not a time"),
        (
            "/v1/reserve",
            json!({ "policy": "mail", "key": "a", "wait": "30s" }),
            400,
            "the time for a request",
        ),
        ("/v1/refund", json!({ "receipt": "a", "policy": "mail" }), 400, "\"policy\" has no meaning"),
        ("/v1/reset", json!({ "policy": "mail", "key": "a", "cost": 2 }), 400, "\"cost\" has no meaning"),
    ] {
        let answered = served.ask(path, call.clone()).await;
        assert_eq!(answered.status, status, "{path} {call}: {answered:?}");
        assert!(answered.detail().contains(said), "{path} {call}: {answered:?}");
    }
    let nested = served.ask("/v1/check", json!({ "batch": [{ "batch": [] }] })).await;
    assert_eq!(nested.body["answers"][0]["status"], 400);
}

#[tokio::test]
async fn a_reset_and_a_refund_by_name_are_told_to_the_store() {
    let served = Served::start().await;
    let key = json!({ "policy": "mail", "key": "ada" });
    let with_cost = |cost| json!({ "policy": "mail", "key": "ada", "cost": cost });
    assert_eq!(served.ask("/v1/check", with_cost(8)).await.remaining(), 2);
    assert_eq!(served.ask("/v1/refund", with_cost(3)).await.remaining(), 5);
    assert_eq!(served.ask("/v1/reset", key).await.remaining(), 10);
}

#[tokio::test]
async fn changed_rules_hold_for_the_next_question_and_what_was_spent_counts() {
    let served = Served::start().await;
    let call = json!({ "policy": "mail", "key": "ada", "cost": 8 });
    assert_eq!(served.ask("/v1/check", call.clone()).await.remaining(), 2);
    served.rules.replace(crate::support::parse(&RULES.replace("10/h", "20/h"))).unwrap();
    assert_eq!(served.ask("/v1/check", call).await.remaining(), 4);
}

/// As Envoy's own server answers at `/json`.
#[tokio::test]
async fn descriptors_of_a_call_are_decided_together_as_by_grpc() {
    let rules = "
version: 1
policies: { address: { quota: 5/h }, path: { quota: 2/h } }
deny: [{ name: banned, only_if: { descriptor: [{ user: eve }] } }]
rules:
  - { name: address, only_if: { domain: edge, descriptor: [{ remote_address: '*' }] }, limit: address, key: client }
  - { name: path, only_if: { domain: edge, descriptor: [{ path: /login }, { remote_address: '*' }] }, limit: path, key: client }
";
    let served = Served::with(rules, |builder| builder).await;
    let entry = |key: &str, value: &str| json!({ "key": key, "value": value });
    let address = json!({ "entries": [entry("remote_address", "192.0.2.7")] });
    let path = json!({ "entries": [entry("path", "/login?a=b"), entry("remote_address", "192.0.2.7")] });
    let call = json!({ "domain": "edge", "descriptors": [address, path] });
    for (status, remaining) in [(200, [4, 1]), (200, [3, 0])] {
        let answered = served.ask("/v1/check", call.clone()).await;
        assert_eq!(answered.status, status, "{answered:?}");
        let limits = answered.body["limits"].as_array().unwrap();
        assert_eq!([&limits[0]["remaining"], &limits[1]["remaining"]], remaining, "{answered:?}");
    }
    assert_eq!(served.ask("/v1/check", call.clone()).await.status, 429);
    let alone = json!({ "domain": "edge", "descriptors": [address] });
    assert_eq!(served.ask("/v1/peek", alone.clone()).await.remaining(), 3, "a refused call spends nothing");
    let twice = json!({ "entries": address["entries"], "hits_addend": 2 });
    let twice = json!({ "domain": "edge", "descriptors": [twice] });
    assert_eq!(served.ask("/v1/check", twice).await.remaining(), 1);
    let banned = json!({ "domain": "edge", "descriptors": [address, { "entries": [entry("user", "eve")] }] });
    assert_eq!(served.ask("/v1/check", banned).await.status, 403);
    assert_eq!(served.ask("/v1/peek", alone).await.remaining(), 1);
    let half = served.ask("/v1/check", json!({ "domain": "edge" })).await;
    assert!(half.status == 400 && half.detail().contains("belong together"), "{half:?}");
}
