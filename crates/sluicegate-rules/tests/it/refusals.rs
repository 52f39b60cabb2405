//! The status of refusals: of the rule, or of the policy that decided.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::Value;
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tower::limits::WouldBe;
use sluicegate_tower::respond::ProblemJson;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{error, parse, request, rules};

const TEXT: &str = "
version: 1
policies:
  slow: { quota: 1/h, status: 503 }
  plain: { quota: 1/h }
  fast: { quota: 2/min, status: 420 }
  hourly: { quota: 3/h, status: 503 }
  tried: { quota: 1/d, status: 418, mode: shadow }
  split: { quota: 2/h, status: 503 }
  free: { quota: 1/h, status: 402 }
  pro: { quota: 2/h }
  queue: { algorithm: leaky-bucket-queue, quota: 1/s burst 2, on_exceeded: wait 1s, status: 503 }
  caught: { quota: 1/min, status: 503, suspend: { after: 2 in 1min, for: 1h } }
  sized: { quota: 2/h, status: 503 }
tiers:
  plan: { by: header(x-plan), tiers: { free: free, pro: pro }, default_tier: free }
exempt: [{ name: open, only_if: { path: /slow/open } }]
rules:
  - { name: slow, only_if: { path: /slow/** }, limit: slow, key: everybody }
  - { name: own, only_if: { path: /own }, limit: plain, key: everybody, status: 451 }
  - { name: above, only_if: { path: /above }, limit: split, key: path, status: 418 }
  - { name: joint, only_if: { path: /joint }, limit: [fast, hourly], key: everybody }
  - { name: tried, only_if: { path: /tried }, limit: tried, key: everybody }
  - { name: split, only_if: { path: /split }, limit: split, share: 1/2, key: everybody }
  - { name: plan, only_if: { path: /plan }, limit: plan, key: everybody }
  - { name: queue, only_if: { path: /queue }, limit: queue, key: everybody }
  - { name: caught, only_if: { path: /caught }, limit: caught, key: everybody }
  - { name: sized, only_if: { path: /sized }, limit: sized, key: everybody, cost: { header: x-units, min: 1, max: 5, missing: 1 } }
";

/// The status of a request, which the body of a refusal repeats.
async fn status(rules: &Rules, path: &str, headers: &[(&str, &str)]) -> u16 {
    let request = request(path, headers);
    let Err(refused) = rules.limits().decide(&request).await else { return 200 };
    let response: Response<Bytes> = refused.respond(&request, &ProblemJson::new());
    let body: Value = serde_json::from_slice(response.body()).expect("it is JSON");
    assert_eq!(body["status"], response.status().as_u16(), "{body}");
    assert_eq!(response.headers().contains_key("retry-after"), response.status() != 403, "{body}");
    response.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_status_of_its_rule_or_else_of_its_policy() {
    let rules = rules(TEXT);
    for (path, headers, expected) in [
        ("/slow/", &[][..], &[200, 503, 503][..]),
        ("/slow/open", &[], &[200, 200]),
        ("/own", &[], &[200, 451]),
        ("/above", &[], &[200, 200, 418]),
        ("/tried", &[], &[200, 200, 200]),
        ("/split", &[], &[200, 503]),
        ("/plan", &[("x-plan", "free")], &[200, 402]),
        ("/plan", &[("x-plan", "pro")], &[200, 200, 429]),
        ("/queue", &[], &[200, 200, 503]),
        ("/caught", &[], &[200, 503, 503, 503]),
        ("/sized", &[("x-units", "5")], &[403]),
    ] {
        for (place, expected) in expected.iter().enumerate() {
            assert_eq!(status(&rules, path, headers).await, *expected, "{path} {headers:?}, request {place}");
        }
    }
    let explained = rules.explain(&request("/slow/", &[])).await.outcome;
    assert!(matches!(explained, WouldBe::Refused { status, .. } if status == 503), "{explained}");
    rules.replace(parse(&TEXT.replace("1/h, status: 503", "1/h, status: 404"))).expect("memory keeps all");
    assert_eq!(status(&rules, "/slow/", &[]).await, 404, "the next request has the status of the next file");
}

#[tokio::test]
async fn of_several_limits_without_room_the_one_that_decides_has_the_status() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
    let rules = Rules::new(&store, parse(TEXT)).expect("memory keeps all");
    for expected in [200, 200, 420] {
        assert_eq!(status(&rules, "/joint", &[]).await, expected);
    }
    clock.advance(Duration::from_secs(30));
    for expected in [200, 503] {
        assert_eq!(status(&rules, "/joint", &[]).await, expected, "the longer wait decides");
    }
}

#[tokio::test]
async fn a_request_without_a_permit_has_the_status_of_its_rule() {
    let file = "
version: 1
in_flight: { one: 1 }
rules: [{ name: all, in_flight: one, key: everybody, status: 451 }]
";
    let layer = rules(file).layer();
    let never = service_fn(|_: Request<()>| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let mut first = Box::pin(layer.layer(never).oneshot(request("/", &[])));
    tokio::select! {
        biased;
        _ = &mut first => panic!("it never ends"),
        second = layer.layer(never).oneshot(request("/", &[])) => assert_eq!(second.unwrap().status(), 451),
    }
}

#[test]
fn a_status_that_no_refusal_has_is_told() {
    for (policy, rule, expected) in [
        ("status: 200", "", "\"200\" is not the status of a refusal"),
        ("", "status: 429.0", "is not the status of a refusal"),
        ("on_exceeded: room, status: 503", "", "a waiting room has no \"status\""),
        ("on_exceeded: room", "status: 503", "\"status\" says nothing here: this rule has a waiting room"),
        ("on_exceeded: defer, status: 503", "", "a policy that defers has no \"status\""),
        ("on_exceeded: defer", "status: 503", "\"status\" says nothing of requests that are kept for later"),
        ("", "bandwidth: down, status: 503", "\"status\" says nothing here: this rule has \"bandwidth\""),
    ] {
        let text = format!(
            "version: 1\npolicies: {{ a: {{ quota: 5/min, {policy} }} }}\nrules: [{{ name: all, limit: a, key: everybody, {rule} }}]\n"
        );
        let told = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(told.contains(expected), "{policy} {rule}: {told}");
    }
}
