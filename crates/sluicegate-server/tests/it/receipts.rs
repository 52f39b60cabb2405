//! `/v1/reserve`, `/v1/settle` and `/v1/refund`: turns, and receipts that are good once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_server::Bounds;
use sluicegate_tests::memory;

use crate::support::{RULES, Served, by_name};

async fn remaining(served: &Served) -> u64 {
    served.ask("/v1/peek", json!({ "policy": "mail", "key": "ada" })).await.remaining()
}

#[tokio::test]
async fn a_reservation_is_settled_up_and_down_once() {
    let served = Served::start().await;
    let reserve = json!({ "policy": "mail", "key": "ada", "cost": 5 });
    let reserved = served.ask("/v1/reserve", reserve.clone()).await;
    assert_eq!((reserved.status, reserved.remaining()), (200, 5));
    assert_eq!(reserved.body["receipt_expires_in_ms"], 900_000);
    let settle = |receipt: &str, actual| json!({ "receipt": receipt, "actual": actual });
    let settled = served.ask("/v1/settle", settle(reserved.receipt(), 2)).await;
    assert_eq!((settled.status, settled.remaining()), (200, 8));
    let again = served.ask("/v1/settle", settle(reserved.receipt(), 0)).await;
    assert!(again.status == 409 && again.detail().contains("used before"), "{again:?}");

    let more = served.ask("/v1/reserve", reserve).await;
    let settled = served.ask("/v1/settle", settle(more.receipt(), 20)).await;
    assert_eq!((settled.status, settled.remaining()), (200, 0), "what does not fit is a debt");
    let refused = served.ask("/v1/check", json!({ "policy": "mail", "key": "ada" })).await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, "4680"), "13 units of 6 min each");
}

#[tokio::test]
async fn a_receipt_is_given_back_in_parts_each_by_the_receipt_of_the_rest() {
    let served = Served::start().await;
    let reserved = served.ask("/v1/reserve", json!({ "policy": "mail", "key": "ada", "cost": 9 })).await;
    let refund = |receipt: &str, units: u64| json!({ "receipt": receipt, "units": units });
    let first = served.ask("/v1/refund", refund(reserved.receipt(), 4)).await;
    assert_eq!(first.remaining(), 5);
    assert_eq!(served.ask("/v1/refund", refund(reserved.receipt(), 4)).await.status, 409);
    let last = served.ask("/v1/refund", json!({ "receipt": first.receipt() })).await;
    assert_eq!((last.remaining(), &last.body["receipt"]), (10, &json!(null)), "nothing is left to give back");
}

#[tokio::test]
async fn units_that_have_come_back_by_themselves_are_not_given_back() {
    let served = Served::start().await;
    let reserved = served.ask("/v1/reserve", json!({ "policy": "mail", "key": "ada", "cost": 5 })).await;
    served.clock.advance(Duration::from_secs(18 * 60));
    assert_eq!(remaining(&served).await, 8, "three have drained");
    let other = served.ask("/v1/check", json!({ "policy": "mail", "key": "ada", "cost": 4 })).await;
    assert_eq!(other.remaining(), 4);
    let refunded = served.ask("/v1/refund", json!({ "receipt": reserved.receipt() })).await;
    assert_eq!(refunded.remaining(), 6, "two of the five still counted");
}

#[tokio::test]
async fn a_reservation_of_a_request_settles_all_of_its_limits() {
    let served = Served::start().await;
    let request = json!({ "path": "/members/7", "headers": { "x-user": "ada" } });
    let reserved = served.ask("/v1/reserve", json!({ "request": request })).await;
    assert_eq!(reserved.remaining(), 9);
    let settled = served.ask("/v1/settle", json!({ "receipt": reserved.receipt(), "actual": 7 })).await;
    assert_eq!(settled.remaining(), 3);
    assert_eq!(remaining(&served).await, 3, "the key that the header names");
}

#[tokio::test]
async fn a_word_that_was_changed_or_made_elsewhere_is_no_receipt() {
    let served = Served::start().await;
    let reserved = served.ask("/v1/reserve", json!({ "policy": "mail", "key": "ada", "cost": 5 })).await;
    let word = reserved.receipt().to_owned();
    let mut words = vec![
        String::new(),
        "nothing".to_owned(),
        word[1..].to_owned(),
        word.clone() + "A",
        "A".repeat(40_000),
    ];
    for place in (0..word.len()).step_by(7) {
        let other = if word.as_bytes()[place] == b'A' { "B" } else { "A" };
        let mut changed = word.clone();
        changed.replace_range(place..=place, other);
        words.push(changed);
    }
    for forged in words {
        let settle = json!({ "receipt": forged, "actual": 0 });
        let answered = served.ask("/v1/settle", settle).await;
        assert_eq!(answered.status, 400, "{forged}: {answered:?}");
    }
    assert_eq!(remaining(&served).await, 5);
    let stranger = Served::start().await;
    let answered = stranger.ask("/v1/refund", json!({ "receipt": word })).await;
    assert_eq!(answered.status, 400, "each start without a secret has one of its own");
    assert_eq!(served.ask("/v1/refund", json!({ "receipt": word })).await.remaining(), 10);
}

#[tokio::test]
async fn a_receipt_of_a_store_in_memory_is_of_its_instance_whatever_the_secret() {
    let secret = "one secret of all instances";
    let [one, other] = [
        Served::with(RULES, |builder| builder.receipt_secret(secret)).await,
        Served::with(RULES, |builder| builder.receipt_secret(secret)).await,
    ];
    let reserved = one.ask("/v1/reserve", json!({ "policy": "mail", "key": "ada" })).await;
    let answered = other.ask("/v1/refund", json!({ "receipt": reserved.receipt() })).await;
    assert!(answered.status == 410 && answered.detail().contains("only the instance"), "{answered:?}");
}

#[tokio::test]
async fn a_receipt_ends() {
    let served = Served::with(RULES, |builder| builder.receipt_lifetime(Duration::from_millis(1))).await;
    let reserved = served.ask("/v1/reserve", json!({ "policy": "mail", "key": "ada" })).await;
    let answered = served.ask("/v1/refund", json!({ "receipt": reserved.receipt() })).await;
    assert!(answered.status == 410 && answered.detail().contains("has expired"), "{answered:?}");
}

#[tokio::test]
async fn a_receipt_of_a_policy_that_has_left_the_rules_is_over() {
    let served = Served::start().await;
    let reserved = served.ask("/v1/reserve", json!({ "policy": "turns", "key": "ada" })).await;
    let without = RULES.replace("  turns: { quota: 100/s burst 1 }\n", "");
    served.rules.replace(crate::support::parse(&without)).unwrap();
    assert_eq!(served.ask("/v1/refund", json!({ "receipt": reserved.receipt() })).await.status, 410);
}

/// Used receipts once were keys of a table that forgets, and units came back twice.
#[tokio::test]
async fn a_receipt_is_used_once_however_many_others_were_and_a_full_list_refuses_new_ones() {
    let (store, clock) = (MemoryStore::builder().table_size(8), memory::store().1);
    let store = store.clock(clock.clone()).build().unwrap();
    let mut bounds = Bounds::default();
    bounds.receipts = 3;
    let served = Served::of(by_name(store, RULES), clock, |builder| builder.bounds(bounds)).await;
    let reserve = |cost: u64| json!({ "policy": "mail", "key": "ada", "cost": cost });
    let first = served.ask("/v1/reserve", reserve(2)).await;
    let give_back = |receipt: &str| json!({ "receipt": receipt });
    assert_eq!(served.ask("/v1/refund", give_back(first.receipt())).await.status, 200);
    for number in 0..200 {
        let other = json!({ "policy": "mail", "key": number });
        let other = served.ask("/v1/reserve", other).await;
        assert_eq!(served.ask("/v1/refund", give_back(other.receipt())).await.status, 200);
        assert_eq!(served.ask("/v1/refund", give_back(first.receipt())).await.status, 409, "{number}");
    }
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(served.ask("/v1/reserve", reserve(2)).await);
    }
    let refused = served.ask("/v1/reserve", reserve(2)).await;
    assert!(refused.status == 503 && refused.detail().starts_with("3 receipts"), "{refused:?}");
    assert_eq!(remaining(&served).await, 4, "the refused call has spent nothing");
    let rest = served.ask("/v1/refund", json!({ "receipt": open[0].receipt(), "units": 1 })).await;
    assert_eq!(served.ask("/v1/reserve", reserve(1)).await.status, 503, "the rest has the place");
    assert_eq!(served.ask("/v1/refund", give_back(rest.receipt())).await.status, 200);
    assert_eq!(served.ask("/v1/reserve", reserve(7)).await.status, 429, "a refusal keeps no place");
    assert_eq!(served.ask("/v1/reserve", reserve(1)).await.status, 200);
}

/// It once said 200 and gave nothing back.
#[tokio::test]
async fn a_receipt_whose_policy_has_another_algorithm_says_so() {
    let served = Served::start().await;
    let reserved = served.ask("/v1/reserve", json!({ "policy": "mail", "key": "ada", "cost": 5 })).await;
    for (quota, status) in [("10/h, algorithm: fixed-window", 410), ("20/h", 200)] {
        served.rules.replace(crate::support::parse(&RULES.replace("10/h", quota))).unwrap();
        let answered = served.ask("/v1/refund", json!({ "receipt": reserved.receipt() })).await;
        assert_eq!(answered.status, status, "{quota}: {answered:?}");
    }
}

#[tokio::test]
async fn reservations_that_wait_come_in_turn_and_beyond_their_wait_are_refused() {
    // On the machine's own time, in which turns come.
    let store: Arc<dyn Store> = MemoryStore::new().into();
    let served = Served::of(by_name(store, RULES), memory::store().1, |builder| builder).await;
    let turn = |wait: &'static str| json!({ "policy": "turns", "key": "ada", "wait": wait });
    let all = futures_util::future::join_all((0..5).map(|_| served.ask("/v1/reserve", turn("10s")))).await;
    assert!(all.iter().all(|answered| answered.status == 200), "{all:?}");
    let store: Arc<dyn Store> = MemoryStore::new().into();
    let slow = RULES.replace("100/s burst 1", "1/h burst 1");
    let served = Served::of(by_name(store, &slow), memory::store().1, |builder| builder).await;
    assert_eq!(served.ask("/v1/reserve", turn("1s")).await.status, 200);
    let refused = served.ask("/v1/reserve", turn("1s")).await;
    assert_eq!(refused.status, 429);
    assert!(matches!(refused.field("retry-after").parse(), Ok(3_590..=3_600)), "{refused:?}");
}
