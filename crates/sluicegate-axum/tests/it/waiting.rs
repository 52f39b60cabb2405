//! Handlers whose requests wait their turn, in tokio's paused time.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_tests::time::Paused;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{request, send, store_on};

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
