//! The end of a process that owes its store something.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use sluicegate_core::limiter::Inherit;
use sluicegate_core::{OnOutage, Policy, RateLimiter};
use sluicegate_resilient::Resilient;
use sluicegate_tests::outages::{FAILS, HANGS, Scene, WORKS, admitted, now};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn api(store: &Resilient) -> RateLimiter {
    Policy::fixed_window("api", "100/h").on(store).unwrap()
}

/// A unit of each of forty keys is owed; the store is in the mood that is given, and keeps the buckets as long as there is a limiter.
fn forty_debts(scene: &Scene, mood: u8) -> RateLimiter {
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    for key in 0..40_u64 {
        assert!(now(limiter.check(format!("user-{key}"))).is_allowed());
    }
    scene.mood(mood);
    limiter
}

async fn left(store: &Resilient, within: Duration) -> usize {
    store.close(within).await.map_or_else(|unsettled| unsettled.debts(), |()| 0)
}

/// Once they were lost with the process, unless somebody asked it often enough before.
#[tokio::test(start_paused = true)]
async fn another_instance_sees_what_was_owed_by_one_that_was_closed() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    scene.mood(WORKS);
    // The breaker is open, and nobody is there who would try whether the store is back.
    scene.store.close(SECOND).await.expect("the store is back");
    assert_eq!(scene.store.status().debts, 0);
    assert_eq!(now(api(&scene.another()).peek("ada")).remaining(), 90);
}

#[tokio::test(start_paused = true)]
async fn closing_charges_each_debt_once_whatever_the_number_of_keys() {
    let scene = Scene::new(|builder| builder);
    let _limiter = forty_debts(&scene, WORKS);
    scene.store.close(SECOND).await.expect("the store is back");
    scene.store.close(SECOND).await.expect("nothing is owed any longer");
    let other = api(&scene.another());
    for key in 0..40_u64 {
        assert_eq!(now(other.peek(format!("user-{key}"))).remaining(), 99, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_ends_by_its_deadline_and_tells_what_is_left() {
    let scene = Scene::new(|builder| builder);
    let _limiter = forty_debts(&scene, FAILS);
    let (calls, begun) = (scene.calls(), Instant::now());
    let unsettled = scene.store.close(SECOND).await.expect_err("the store is away");
    assert_eq!((unsettled.debts(), begun.elapsed()), (40, SECOND));
    assert!(unsettled.to_string().starts_with("40 debts were not charged"), "{unsettled}");
    assert!(scene.calls() - calls <= 10, "a store that is away is asked ten times a second at most");
    assert_eq!(left(&scene.store, Duration::ZERO).await, 40);
    scene.mood(WORKS);
    assert_eq!(left(&scene.store, SECOND).await, 0, "it can be closed again");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_while_an_instance_closes_is_paid_at_once() {
    let scene = Scene::new(|builder| builder);
    let _limiter = forty_debts(&scene, FAILS);
    let (store, begun) = (scene.store.clone(), Instant::now());
    let closing = tokio::spawn(async move { left(&store, 60 * SECOND).await });
    tokio::time::sleep(2 * SECOND).await;
    scene.mood(WORKS);
    assert_eq!(closing.await.unwrap(), 0);
    assert!(begun.elapsed() <= 2 * SECOND + 100 * MS, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_the_end_no_longer_than_the_deadline_and_no_debt_is_forgotten() {
    for deadline in [None, Some(50 * MS)] {
        let scene = Scene::new(|builder| match deadline {
            Some(deadline) => builder.deadline(deadline),
            None => builder,
        });
        let _limiter = forty_debts(&scene, HANGS);
        let begun = Instant::now();
        assert_eq!(left(&scene.store, SECOND).await, 40, "a charge without an answer may not have arrived");
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_in_the_background_meanwhile_is_waited_for() {
    let scene = Scene::new(|builder| builder);
    let _limiter = forty_debts(&scene, WORKS);
    scene.advance(2);
    let limiter = scene.limiter(OnOutage::Local);
    // Three trials close the breaker, and begin to settle.
    assert_eq!(admitted(&limiter, "bob", 3), 3);
    scene.mood(HANGS);
    tokio::task::yield_now().await;
    assert_eq!(scene.store.status().debts, 24, "the others are in the hands of the task that settles");
    assert_eq!(left(&scene.store, SECOND).await, 40);
}

/// The bytes of an answer are counted when it ends, which is when a process ends, too.
#[tokio::test(start_paused = true)]
async fn a_charge_that_is_under_way_is_waited_for() {
    let scene = Scene::new(|builder| builder.deadline(50 * MS));
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(HANGS);
    drop(limiter.charge("ada", 4).start());
    scene.mood(WORKS);
    assert_eq!(left(&scene.store, Duration::ZERO).await, 1);
    assert_eq!(left(&scene.store, SECOND).await, 0);
    assert_eq!(now(api(&scene.another()).peek("ada")).remaining(), 96);
}

#[tokio::test(start_paused = true)]
async fn closing_asks_for_nothing_when_nothing_is_owed() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    scene.mood(FAILS);
    let calls = scene.calls();
    assert_eq!(left(&scene.store, SECOND).await, 0);
    assert_eq!(scene.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn debts_of_each_policy_are_settled_and_those_of_a_replaced_one_by_what_replaced_it() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    let login = Policy::gcra("login", "20/h").on(&scene.store).unwrap();
    scene.mood(FAILS);
    assert_eq!((admitted(&limiter, "ada", 3), admitted(&login, "ada", 2)), (3, 2));
    limiter.replace(Policy::fixed_window("api", "200/h").build().unwrap(), Inherit::AsIs).unwrap();
    assert_eq!(left(&scene.store, Duration::ZERO).await, 2, "one for each policy");
    scene.mood(WORKS);
    assert_eq!(left(&scene.store, SECOND).await, 0);
    scene.advance(2);
    // The pause is over, so that the store is asked again.
    assert_eq!((now(limiter.peek("ada")).remaining(), now(login.peek("ada")).remaining()), (197, 18));
}

#[tokio::test(start_paused = true)]
async fn closing_that_is_dropped_leaves_owed_what_it_has_not_sent() {
    let scene = Scene::new(|builder| builder);
    let _limiter = forty_debts(&scene, HANGS);
    let calls = scene.calls();
    assert!(tokio::time::timeout(MS, scene.store.close(SECOND)).await.is_err());
    assert_eq!(scene.calls(), calls + 1);
    let sent = 40 - scene.store.status().debts;
    assert!((1..40).contains(&sent), "{sent}");
    scene.mood(WORKS);
    assert_eq!(left(&scene.store, SECOND).await, 0);
}

/// The row of the page on outages: a process that is restarted in an outage starts from rest, and what it owed is lost.
#[tokio::test(start_paused = true)]
async fn a_restart_during_an_outage_adds_one_share() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    assert_eq!(admitted(&limiter, "ada", 60), 60);
    scene.mood(FAILS);
    // Those 60 were more than a share, and the fallback knew of them.
    assert_eq!((admitted(&limiter, "ada", 100), admitted(&limiter, "bob", 100)), (0, 25));
    assert_eq!(left(&scene.store, SECOND).await, 1);
    let next = scene.another();
    let after = api(&next);
    assert_eq!((admitted(&after, "ada", 100), admitted(&after, "bob", 100)), (25, 25));
    scene.mood(WORKS);
    assert_eq!(left(&next, SECOND).await, 0);
    let third = api(&scene.another());
    assert_eq!((now(third.peek("ada")).remaining(), now(third.peek("bob")).remaining()), (15, 75));
}
