//! The recipes of the page on migration that are no programs. [`crate::migration`] runs the limiters of before beside ours.

use std::time::Duration;

use http::Method;
use sluicegate::RateLimiter;
use sluicegate_tests::memory::{answer, store};

use super::pasted::migration;
use super::{OK, PEER, REFUSED, ask, passes, request, status};

#[tokio::test]
async fn the_limits_of_other_crates_pass_as_many_as_there() {
    let moved = migration::tower_governor::app().unwrap();
    assert_eq!(passes(&moved, (0..9).map(|_| request(PEER))).await, 5);
    let moved = migration::axum_governor::app(&store().0).unwrap();
    assert_eq!(passes(&moved, (0..90).map(|_| request(PEER))).await, 50);
}

#[tokio::test]
async fn express_counts_failures_from_the_first_one_on() {
    let (store, clock) = store();
    let layer = migration::express_rate_limit::layer(&store).unwrap();
    clock.advance(Duration::from_secs(14 * 60));
    for _ in 0..200 {
        assert_eq!(status(&layer, request(PEER), OK).await, OK);
    }
    for number in 0..120 {
        let expected = if number < 100 { 404 } else { REFUSED };
        assert_eq!(status(&layer, request(PEER), 404).await, expected, "number {number}");
    }
    for (minutes, expected) in [(14, REFUSED), (1, 404)] {
        clock.advance(Duration::from_secs(60 * minutes));
        assert_eq!(status(&layer, request(PEER), 404).await, expected);
    }
}

#[tokio::test]
async fn a_route_beside_the_limit_never_meets_it() {
    let store = store().0;
    let health = || (0..500).map(|_| ask(Method::GET, "/health", &[]));
    let added = migration::one_route_without_the_limit::added_after(&store).unwrap();
    let named = migration::one_route_without_the_limit::named(added.clone(), &store).unwrap();
    for app in [&added, &named] {
        assert_eq!(passes(app, health()).await, 500);
    }
    assert_eq!(passes(&added, (0..150).map(|_| request(PEER))).await, 100);
}

/// What became of forty at once: served at once, served after these waits at last, and refused.
fn fates(limiter: &RateLimiter) -> (usize, Duration, usize) {
    let decisions: Vec<_> = (0..40).map(|_| answer(limiter.check("ada"))).collect();
    let at_once = decisions.iter().filter(|decision| decision.is_allowed() && decision.delay().is_zero());
    let refused = decisions.iter().filter(|decision| !decision.is_allowed());
    let last = decisions.iter().map(sluicegate::Decision::delay).max();
    (at_once.count(), last.unwrap_or_default(), refused.count())
}

#[test]
fn nginx_and_resilience4j_let_as_many_wait() {
    let (store, clock) = store();
    let [nodelay, queue, partly] = migration::nginx_limit_req::limiters(&store).unwrap();
    assert_eq!(fates(&nodelay), (21, Duration::ZERO, 19));
    assert_eq!(fates(&queue), (1, Duration::from_secs(2), 19));
    assert_eq!(fates(&partly), (9, Duration::from_millis(1_200), 19));
    // 400 ms before the next period, whose ten are served after that wait; at its beginning the wait would be a second.
    let reports = migration::resilience4j::reports(&store).unwrap();
    clock.advance(Duration::from_millis(600));
    assert_eq!(fates(&reports), (10, Duration::from_millis(400), 20));
    clock.advance(Duration::from_millis(1_400));
    assert_eq!(fates(&reports), (10, Duration::ZERO, 30));
}
