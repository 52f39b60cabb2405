//! The spans of waits for permits and for bandwidth.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tests::process::alone;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::call::CallInFlightLayer;
use sluicegate_tower::in_flight::InFlightLayer;
use tokio::task::yield_now;
use tower::{Layer, ServiceExt, service_fn};
use tracing::{Instrument, info_span};

use crate::support::spans::{Seen, Spans};
use crate::support::{Handler, by_header, from, limiter};

/// Runs a test that sees all spans of its process, on a runtime whose time is paused.
fn run<F: Future<Output = ()>>(test: impl FnOnce(Spans) -> F) {
    let spans = Spans::of_this_process();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(test(spans));
}

/// The span around the wait, whether it is over, and its fields.
fn told(wait: &Seen) -> (Option<&'static str>, bool, String) {
    (wait.parent, wait.is_over, wait.fields())
}

#[test]
fn a_wait_for_a_permit_is_a_span_that_says_what_has_ended_it() {
    alone(|| {
        run(async |spans| {
            let reports = InFlight::new("reports", 1).unwrap();
            let layer = InFlightLayer::new(reports.clone()).key(Key::shared());
            let service = layer.wait_up_to(Duration::from_secs(2)).layer(Handler::default());
            let calls = CallInFlightLayer::new({
                let reports = reports.clone();
                move |_: &u64| reports.request(Key::shared())
            });
            let job = service_fn(async |job: u64| Ok::<_, Infallible>(job));
            let job = calls.wait_up_to(Duration::from_secs(2)).layer(job);

            // With a permit at hand there is no wait.
            assert_eq!(service.clone().oneshot(from("ada")).await.unwrap().status(), 200);
            assert!(spans.named("in_flight.wait").is_empty());

            for ended_by in ["permit", "refused", "given_up"] {
                let held = reports.try_acquire(Key::shared()).unwrap();
                let request = service.clone().oneshot(from("ada")).instrument(info_span!("request"));
                let (request, call) = (tokio::spawn(request), tokio::spawn(job.clone().oneshot(1)));
                yield_now().await;
                match ended_by {
                    "permit" => drop(held),
                    "refused" => tokio::time::sleep(Duration::from_secs(3)).await,
                    _ => {
                        request.abort();
                        call.abort();
                    }
                }
                // The permit of the response is held for as long as the response is.
                let request_left = request.await.is_err();
                let call_left = call.await.is_err();
                assert_eq!([request_left, call_left], [ended_by == "given_up"; 2]);
                let seen = spans.named("in_flight.wait");
                let fields = format!("policy=reports ended_by={ended_by}");
                let expected = [(Some("request"), true, fields.clone()), (None, true, fields)];
                assert_eq!(seen.iter().map(told).collect::<Vec<_>>(), expected);
            }
        })
    });
}

/// A wait may be as short as a tenth of a second, and a download has many.
#[test]
fn the_waits_of_a_body_for_its_bandwidth_are_one_span_with_their_sum() {
    alone(|| {
        run(async |spans| {
            let limiter = limiter(Policy::gcra("downloads", "1kB/s burst 1kB"));
            let layer = RateLimitLayer::new(by_header(limiter).bandwidth(Direction::Down)).settling();
            let file = service_fn(async |request: Request<()>| {
                let bytes = if request.uri().path() == "/small" { 1_000 } else { 4_000 };
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![0; bytes]))))
            });
            let service = layer.layer(file);
            let get = |path: &str| Request::get(path).header("x-key", "ada").body(()).unwrap();
            async {
                let small = service.clone().oneshot(get("/small")).await.unwrap();
                small.into_body().collect().await.unwrap();
                assert!(spans.named("bandwidth.wait").is_empty(), "the burst is at hand");
                let large = service.clone().oneshot(get("/large")).await.unwrap();
                large.into_body().collect().await.unwrap();
            }
            .instrument(info_span!("request"))
            .await;
            let seen = spans.named("bandwidth.wait");
            let expected = [(Some("request"), true, "policy=downloads wait_ms=4000".to_owned())];
            assert_eq!(seen.iter().map(told).collect::<Vec<_>>(), expected);
        })
    });
}
