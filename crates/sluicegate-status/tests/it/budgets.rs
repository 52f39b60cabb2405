//! Budgets on the page: the keys that are nearest to the end of theirs.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_core::key::KeyKind;
use sluicegate_core::{Key, Policy, RateLimiter};

use crate::support::{PLANTED, World, get, post, submit};

const DAY: Duration = Duration::from_secs(86_400);

async fn spend(limiter: &RateLimiter, key: &str, kind: KeyKind, cost: u64) {
    let key = Key::from(key).of_kind(kind);
    _ = limiter.check(key).cost(cost).await.unwrap();
}

/// A page on the fifteenth of a month of 30 days, at 22:00.
async fn world() -> (World, RateLimiter) {
    let world = World::new();
    let tokens = Policy::gcra("tokens", "1000/month").and("900/min").on(&world.store).unwrap();
    spend(&tokens, "acme", KeyKind::Name, 620).await;
    spend(&tokens, PLANTED, KeyKind::Secret, 100).await;
    world.clock.advance(DAY);
    (world, tokens)
}

#[tokio::test]
async fn a_budget_has_a_bar_its_units_and_when_it_is_used_up_at_this_pace() {
    let (world, tokens) = world().await;
    let page = world.guarded();
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let budgets = json["policies"].as_array().unwrap().iter().find(|policy| policy["name"] == "tokens");
    let acme = &budgets.unwrap()["budgets"][0];
    assert_eq!((&acme["used"], &acme["limit"], &acme["kind"]), (&json!(620), &json!(1_000), &json!("name")));
    assert_eq!(
        (&acme["from"], &acme["until"]),
        (&json!("2023-11-01T00:00:00.000Z"), &json!("2023-12-01T00:00:00.000Z"))
    );
    // 14 days and 22 hours for 620, and 38/62 of that for the rest.
    assert_eq!(acme["used_up_at"], json!("2023-11-25T01:25:09.677Z"), "{acme}");
    let body = get(&page, "/").await.into_body();
    let (_, section) = body.split_once("Budgets: ").unwrap();
    let (section, _) = section.split_once("</section>").unwrap();
    for text in ["value=\"0.6200\"", "62 %", "620 of 1,000", "2023-12-01 00:00", "2023-11-25 01:25", "lasts"]
    {
        assert!(section.contains(text), "{text}: {section}");
    }
    assert!(section.contains("aria-label=\"used by &quot;acme&quot; of tokens\""), "{section}");
    spend(&tokens, "acme", KeyKind::Name, 380).await;
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("100 %") && body.contains("used up</strong>"), "{body}");
    // The next month begins without any.
    world.clock.advance(16 * DAY);
    assert!(!get(&page, "/").await.body().contains("Budgets: "), "there is none");
}

#[tokio::test]
async fn a_key_of_a_budget_is_looked_up_by_its_word_and_readers_see_digests_only() {
    let (world, _tokens) = world().await;
    let page = world.guarded();
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let policies = json["policies"].as_array().unwrap();
    let tokens = policies.iter().find(|policy| policy["name"] == "tokens").unwrap();
    let word = tokens["budgets"][1]["ref"].as_str().unwrap();
    let (_, found) = post(&page, "/keys/look-up", &json!({ "ref": word })).await;
    assert_eq!(found["limits"][0]["quotas"][0]["remaining"], 900, "{found}");
    let body = submit(&page, &format!("do=look-up&ref={word}")).await.into_body();
    assert!(body.contains("900 of 1,000 left") && !body.contains(PLANTED), "{body}");
    for path in ["/", "/status.json"] {
        let body = get(&world.read_only(), path).await.into_body();
        assert!(body.contains("620") && !body.contains("acme") && !body.contains(PLANTED), "{body}");
    }
}
