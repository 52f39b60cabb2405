//! Handlers whose requests wait their turn, in tokio's paused time.

use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_tests::time::Paused;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{request, send, store_on};

static SEEN_MS: Mutex<Vec<u128>> = Mutex::new(Vec::new());

#[rate_limited("2/s burst 1", algorithm = "leaky-bucket", on_exceeded = "wait 5s", crate = sluicegate_axum)]
async fn upload(start: axum::Extension<Instant>) {
    SEEN_MS.lock().unwrap().push(start.elapsed().as_millis());
}

#[tokio::test(start_paused = true)]
async fn requests_pass_in_their_turn_and_those_that_would_wait_too_long_are_refused_at_once() {
    let start = Instant::now();
    let app = Router::new()
        .route("/", get(upload))
        .with_rate_limits(store_on(Paused(start)))
        .layer(axum::Extension(start));
    let mut all = JoinSet::new();
    for _ in 0..13 {
        let app = app.clone();
        all.spawn(async move {
            (send(&app, request("/", 1, None)).await.status.as_u16(), start.elapsed().as_millis())
        });
    }
    let mut answers = all.join_all().await;
    answers.sort_by_key(|(_, ms)| *ms);
    // Eleven turns come within five seconds.
    let passed: Vec<u128> = answers.iter().filter(|(status, _)| *status == 200).map(|(_, ms)| *ms).collect();
    assert_eq!(passed, (0..=10).map(|turn| turn * 500).collect::<Vec<u128>>());
    assert_eq!(answers.iter().filter(|answer| **answer == (429, 0)).count(), 2, "{answers:?}");
    assert_eq!(*SEEN_MS.lock().unwrap(), passed, "the handler runs when its turn comes");
}

#[rate_limited("1/s burst 1", algorithm = "leaky-bucket", on_exceeded = "wait 1s", fallback = later, crate = sluicegate_axum)]
async fn patient(body: String) -> String {
    body
}

async fn later(body: String) -> String {
    format!("{body}, later")
}

#[tokio::test(start_paused = true)]
async fn a_fallback_answers_at_once_what_would_wait_too_long_and_the_handler_what_has_waited() {
    let start = Instant::now();
    let app = Router::new().route("/", get(patient)).with_rate_limits(store_on(Paused(start)));
    let mut all = JoinSet::new();
    for number in 0..3 {
        let (app, mut request) = (app.clone(), request("/", 1, None));
        *request.body_mut() = axum::body::Body::from(number.to_string());
        all.spawn(
            async move { (start.elapsed().as_millis(), send(&app, request).await.body, start.elapsed()) },
        );
    }
    let mut answers = all.join_all().await;
    answers.sort();
    let at = |seconds: u64| Duration::from_secs(seconds);
    let [now, waited, refused] =
        [("0", at(0)), ("1", at(1)), ("2, later", at(0))].map(|(text, time)| (0, text.to_owned(), time));
    assert_eq!(answers, [now, waited, refused]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_waits_for_is_given_back() {
    let start = Instant::now();
    let app = Router::new().route("/", get(upload_too)).with_rate_limits(store_on(Paused(start)));
    assert_eq!(send(&app, request("/", 1, None)).await.status, 200);
    {
        let mut waiting = std::pin::pin!(send(&app, request("/", 1, None)));
        let gone = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
        assert!(gone.is_err(), "its turn is in half a second");
    }
    let elapsed = || start.elapsed().as_millis();
    assert_eq!(elapsed(), 100);
    assert_eq!(send(&app, request("/", 1, None)).await.status, 200);
    assert_eq!(elapsed(), 500, "the turn of the one that went away");
}

#[rate_limited("2/s burst 1", algorithm = "leaky-bucket", on_exceeded = "wait 5s", crate = sluicegate_axum)]
async fn upload_too() {}
