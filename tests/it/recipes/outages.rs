//! The recipes of the page on outages.

use std::time::Duration;

use http::StatusCode;
use sluicegate::{OnOutage, Policy, RateLimitLayer};
use sluicegate_tests::around::broken;
use sluicegate_tests::memory::paused_store;
use sluicegate_tests::outages::{FAILS, Scene, WORKS, admitted};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::pasted::{outages, waiting};
use super::{OK, PEER, REFUSED, behind, request, status};

#[tokio::test]
async fn each_policy_does_in_an_outage_as_it_says() {
    let [search, login, pixel, feed] = outages::opening::limiters(broken(true)).unwrap();
    // The fallback goes by the machine's clock: whatever comes back meanwhile passes, too.
    for (limiter, passes, last_status) in
        [(search, 25, REFUSED), (login, 0, 503), (pixel, 1_000, OK), (feed, 20, REFUSED)]
    {
        let layer = RateLimitLayer::new(limiter);
        for _ in 0..passes {
            assert_eq!(status(&layer, request(PEER), OK).await, OK);
        }
        while status(&layer, request(PEER), OK).await != last_status {}
    }
}

#[tokio::test]
async fn a_process_that_stops_charges_what_it_has_admitted_alone() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    scene.mood(WORKS);
    outages::when_a_process_ends::stop(&limiter, scene.store.clone()).await;
    let next = Policy::fixed_window("api", "100/h").on(scene.another()).unwrap();
    assert_eq!(next.peek("ada").await.unwrap().remaining(), 90);
}

#[tokio::test(start_paused = true)]
async fn a_stop_answers_the_requests_that_wait() {
    let (over, is_over) = watch::channel(false);
    let limited = behind(waiting::opening::layer(&paused_store()).unwrap());
    let app = outages::when_a_process_ends_2::ends_with(limited, is_over);
    let began = Instant::now();
    let [served, waiting] = [(), ()].map(|()| tokio::spawn(app.clone().oneshot(request(PEER))));
    assert_eq!(served.await.unwrap().unwrap().status(), StatusCode::OK);
    over.send(true).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
