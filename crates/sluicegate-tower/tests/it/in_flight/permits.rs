//! How many at once: what counts, for how long, and what clients are told.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::{
    HeldPermit, InFlightHandle, InFlightLayer, InFlightLimit, InFlightLimits, PermitBody,
};
use sluicegate_tower::key::{OnMissingKey, RequestView, key_fn};
use sluicegate_tower::limits::Selected;
use sluicegate_tower::respond::{GrpcStatus, HeaderFields, Refusal, RefusalReason};
use sluicegate_tower::{KeyExtractor, Limit};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::{hello, kinds};
use crate::support::{Body, all_fields, from, limiter, send};

fn by_header() -> impl KeyExtractor {
    fn key(request: RequestView<'_>) -> Option<String> {
        Some(request.headers.get("x-key")?.to_str().ok()?.to_owned())
    }
    key_fn(key)
}

fn field<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next().unwrap_or_else(|| panic!("{name} is missing")).to_str().unwrap();
    assert!(values.next().is_none(), "{name} is there twice");
    value
}

#[tokio::test]
async fn two_numbers_of_one_name_are_both_enforced() {
    let [wide, narrow] = [20, 1].map(|permits| InFlight::new("api", permits).unwrap());
    let limits = InFlightLayer::new(InFlightLimit::new(wide).key(by_header()))
        .and(InFlightLimit::new(narrow.clone()).key(by_header()));
    let service = limits.layer(service_fn(hello));
    let held = send(&service, from("ada")).await;
    assert_eq!(held.status(), StatusCode::OK);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS, "{narrow:?}");
}

#[tokio::test]
async fn one_too_many_is_refused_and_told_so() {
    let uploads = InFlight::new("uploads", 2).unwrap();
    let service = InFlightLayer::new(uploads.clone()).key(by_header()).layer(service_fn(hello));
    let first = send(&service, from("ada")).await;
    let second = send(&service, from("ada")).await;
    let policy = r#""uploads";q=2;qu="concurrent-requests""#;
    for (response, left) in [(&first, r#""uploads";r=1"#), (&second, r#""uploads";r=0"#)] {
        assert_eq!((field(response, "ratelimit-policy"), field(response, "ratelimit")), (policy, left));
    }
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    for (name, value) in [
        ("ratelimit-policy", policy),
        ("ratelimit", r#""uploads";r=0"#),
        ("retry-after", "1"),
        ("cache-control", "no-store"),
        ("content-type", "application/problem+json"),
    ] {
        assert_eq!(field(&refused, name), value);
    }
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!((&problem["limit"], &problem["retry_after"]), (&2.into(), &1.into()));
    assert_eq!(problem["violated-policies"], serde_json::json!(["uploads"]));
    assert_eq!(
        send(&service, from("bob")).await.status(),
        StatusCode::OK,
        "another key has permits of its own"
    );
    drop(first);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
}

/// A body whose frames come when the test sends them.
struct Live(mpsc::Receiver<Result<Frame<Bytes>, &'static str>>);

impl http_body::Body for Live {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(7)
    }
}

/// The body of a response from behind the layer, and the hand that fills it.
async fn live(in_flight: &InFlight) -> (PermitBody<Live>, mpsc::Sender<Result<Frame<Bytes>, &'static str>>) {
    let (sender, receiver) = mpsc::channel(4);
    let body = Arc::new(Mutex::new(Some(Live(receiver))));
    let stream = service_fn(move |_: Request<()>| {
        let body = body.lock().unwrap().take().expect("one request is made");
        ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let nobody = |_: &Refusal<'_>| -> Response<Live> { unreachable!("nothing is refused") };
    let layer = InFlightLayer::new(in_flight.clone()).key(by_header()).respond(nobody);
    (send(&layer.layer(stream), from("ada")).await.into_body(), sender)
}

#[tokio::test]
async fn a_request_is_under_way_until_its_body_has_ended() {
    for downloads in kinds("downloads", 1) {
        let (mut body, sender) = live(&downloads).await;
        sender.send(Ok(Frame::data("part".into()))).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "part");
        assert_eq!((downloads.in_use("ada"), body.is_holding()), (1, true));
        drop(sender);
        assert!(body.frame().await.is_none());
        assert_eq!(
            (downloads.in_use("ada"), body.is_holding()),
            (0, false),
            "it has ended, and is still there"
        );
    }
}

#[tokio::test]
async fn a_request_is_under_way_until_its_body_fails_or_is_dropped() {
    for downloads in kinds("downloads", 1) {
        let (mut body, sender) = live(&downloads).await;
        sender.send(Err("the disk is gone")).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap_err(), "the disk is gone");
        assert_eq!(downloads.in_use("ada"), 0);
        let (body, _sender) = live(&downloads).await;
        assert_eq!(downloads.in_use("ada"), 1);
        drop(body);
        assert_eq!(downloads.in_use("ada"), 0);
    }
}

#[tokio::test]
async fn sizes_and_trailers_come_through() {
    let (mut body, sender) = live(&InFlight::new("downloads", 1).unwrap()).await;
    assert_eq!(body.size_hint().exact(), Some(7));
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    sender.send(Ok(Frame::trailers(trailers.clone()))).await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
}

#[tokio::test]
async fn what_other_layers_said_stays() {
    let uploads = InFlightLayer::new(InFlight::new("uploads", 9).unwrap()).key(by_header());
    let api = Limit::new(limiter(Policy::gcra("api", "1/min"))).key(by_header());
    let service =
        ServiceBuilder::new().layer(uploads).layer(all_fields(api).build().unwrap()).service_fn(hello);
    for (status, left) in
        [(200, r#""api";r=0;t=60, "uploads";r=8"#), (429, r#""api";r=0;t=60, "uploads";r=8"#)]
    {
        let response = send(&service, from("ada")).await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (status, left));
        let policy = r#""api";q=1;w=60, "uploads";q=9;qu="concurrent-requests""#;
        assert_eq!(field(&response, "ratelimit-policy"), policy);
        assert_eq!(field(&response, "x-ratelimit-remaining"), "0");
    }
}

#[tokio::test]
async fn limits_around_it_give_back_what_they_spent_on_a_request_that_it_refused() {
    let limiter = limiter(Policy::gcra("calls", "5/h"));
    let rate = all_fields(Limit::new(limiter.clone()).key(by_header())).build().unwrap();
    let in_flight = InFlightLayer::new(InFlight::new("uploads", 1).unwrap()).key(by_header());
    let service = ServiceBuilder::new().layer(rate).layer(in_flight).service_fn(hello);
    let first = send(&service, from("ada")).await;
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 4);
    drop(first);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 3);
}

/// A server that does not say who connects is to blame for its 500, and the client once paid for it.
#[tokio::test]
async fn limits_around_it_give_back_what_they_spent_where_the_server_says_no_peer() {
    let rate = limiter(Policy::gcra("api", "9/h"));
    let around = all_fields(Limit::new(rate.clone()).key(Key::from("all"))).build().unwrap();
    let by_peer = InFlightLayer::new(InFlight::new("downloads", 9).unwrap());
    let service = around.layer(by_peer.layer(service_fn(hello)));
    let refused = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(rate.peek("all").await.unwrap().remaining(), 9);
}

#[tokio::test]
async fn fields_and_answers_can_be_chosen() {
    let uploads = InFlightLayer::new(InFlight::new("uploads", 1).unwrap()).key(by_header());
    let service = uploads.headers(HeaderFields::None).responder(GrpcStatus::new()).layer(service_fn(hello));
    let first = send(&service, from("ada")).await;
    assert!(first.headers().is_empty());
    let refused = send(&service, from("ada")).await;
    assert_eq!((refused.status(), field(&refused, "grpc-status")), (StatusCode::OK, "8"));
    assert_eq!(field(&refused, "grpc-retry-pushback-ms"), "1000");
}

#[tokio::test]
async fn scripts_of_other_origins_may_read_the_fields_of_what_is_served_and_of_what_is_refused() {
    let uploads = InFlightLayer::new(InFlight::new("uploads", 1).unwrap()).key(by_header());
    let service = uploads.expose_headers().layer(service_fn(hello));
    let first = send(&service, from("ada")).await;
    assert_eq!(field(&first, "access-control-expose-headers"), "ratelimit-policy, ratelimit");
    let refused = send(&service, from("ada")).await;
    assert_eq!(field(&refused, "access-control-expose-headers"), "ratelimit-policy, ratelimit, retry-after");
}

/// It was once told as an exceeded policy of a made-up quota.
#[tokio::test]
async fn a_responder_is_told_that_too_many_are_under_way_at_once() {
    let told = |refusal: &Refusal<'_>| {
        let RefusalReason::ConcurrencyExceeded(in_flight) = refusal.reason() else { panic!("{refusal:?}") };
        assert_eq!((in_flight.name(), in_flight.permits()), ("uploads", 1));
        assert!(refusal.decided().is_none() && refusal.standing().is_none());
        assert_eq!(refusal.violated().collect::<Vec<_>>(), ["uploads"]);
        assert_eq!((refusal.status().as_u16(), refusal.retry_after_seconds()), (429, Some(1)));
        Response::new(Body::from("one at a time"))
    };
    let uploads = InFlightLayer::new(InFlight::new("uploads", 1).unwrap()).key(by_header());
    let service = uploads.respond(told).layer(service_fn(hello));
    let _first = send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(refused, "one at a time");
}

#[tokio::test]
async fn whoever_prefers_text_or_speaks_grpc_is_told_in_the_same_words() {
    let words = "oo many requests at once: at most 1, so try again when one has ended";
    let uploads = InFlightLayer::new(InFlight::new("uploads", 1).unwrap()).key(by_header());
    let service = uploads.clone().layer(service_fn(hello));
    let _first = send(&service, from("ada")).await;
    let mut browser = from("ada");
    browser.headers_mut().insert("accept", HeaderValue::from_static("text/html"));
    let refused = service.clone().oneshot(browser).await.unwrap();
    assert_eq!(field(&refused, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), format!("T{words}\n"));
    let refused = send(&uploads.responder(GrpcStatus::new()).layer(service_fn(hello)), from("ada")).await;
    let status = tonic::Status::from_header_map(refused.headers()).unwrap();
    assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, &*format!("t{words}")));
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].subject, "uploads");
}

#[tokio::test]
async fn a_request_without_a_key_shares_is_rejected_or_does_not_count() {
    let uploads = InFlight::new("uploads", 1).unwrap();
    let anonymous = || Request::get("/").body(()).unwrap();
    for (action, statuses) in [
        (OnMissingKey::Share, [200, 429]),
        (OnMissingKey::Reject(StatusCode::UNAUTHORIZED), [401, 401]),
        (OnMissingKey::Skip, [200, 200]),
    ] {
        let layer = InFlightLayer::new(uploads.clone()).key(by_header()).on_missing_key(action);
        let service = layer.layer(service_fn(hello));
        let first = service.clone().oneshot(anonymous()).await.unwrap();
        let second = service.oneshot(anonymous()).await.unwrap();
        assert_eq!([first.status().as_u16(), second.status().as_u16()], statuses, "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_order_or_refused_in_time() {
    let uploads = InFlight::new("uploads", 1).unwrap();
    let takes_a_second = service_fn(|request: Request<()>| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        hello(request).await
    });
    let layer = InFlightLayer::new(uploads.clone()).key(by_header());
    let mut service = layer.wait_up_to(Duration::from_millis(2_500)).layer(takes_a_second);
    let start = Instant::now();
    let mut requests = Vec::new();
    for _ in 0..4 {
        let response = service.ready().await.unwrap().call(from("ada"));
        requests.push(tokio::spawn(async move {
            let status = response.await.unwrap().status().as_u16();
            (status, start.elapsed().as_millis())
        }));
    }
    let mut seen = Vec::new();
    for request in requests {
        seen.push(request.await.unwrap());
    }
    assert_eq!(seen, [(200, 1_000), (200, 2_000), (200, 3_000), (429, 2_500)]);
    assert_eq!(uploads.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_refuses_at_once() {
    let uploads = InFlight::builder("uploads", 1).queue(1).build().unwrap();
    let layer = InFlightLayer::new(uploads).key(by_header()).wait_up_to(Duration::from_secs(60));
    let mut service = layer.layer(service_fn(hello));
    let _held = send(&service, from("ada")).await;
    let waiting = service.ready().await.unwrap().call(from("ada"));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(waiting);
}

#[test]
fn under_any_concurrency_never_more_requests_are_under_way() {
    const THREADS: usize = 4;
    let uploads = InFlightLayer::new(InFlight::new("uploads", 2).unwrap()).key(by_header());
    let (now, most, passed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (now, most, passed, barrier) = (&now, &most, &passed, &barrier);
            let service = uploads.layer(service_fn(hello));
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                barrier.wait();
                runtime.block_on(async {
                    for _ in 0..500 {
                        let response = send(&service, from("ada")).await;
                        if response.status() == StatusCode::OK {
                            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            passed.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(response);
                    }
                });
            });
        }
    });
    assert!(most.into_inner() <= 2 && passed.into_inner() > 0);
}

/// Two numbers: of all requests together, and of each key.
fn two(all: u64, each: u64) -> (InFlight, InFlight, InFlightLayer) {
    let (all, each) = (InFlight::new("all", all).unwrap(), InFlight::new("each", each).unwrap());
    let limit = InFlightLimit::new(each.clone()).key(by_header());
    let layer = InFlightLayer::new(all.clone()).key(Key::from("all")).and(limit);
    (all, each, layer)
}

#[tokio::test]
async fn a_request_that_several_limits_count_has_a_permit_of_each_or_none() {
    let (all, each, layer) = two(3, 1);
    let service = layer.layer(service_fn(hello));
    let first = send(&service, from("ada")).await;
    assert_eq!(
        field(&first, "ratelimit-policy"),
        r#""all";q=3;qu="concurrent-requests", "each";q=1;qu="concurrent-requests""#
    );
    assert_eq!(field(&first, "ratelimit"), r#""all";r=2, "each";r=0"#);
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((all.in_use("all"), each.in_use("ada")), (1, 1), "what it had is given back");
    let _others = (send(&service, from("bob")).await, send(&service, from("eve")).await);
    assert_eq!(send(&service, from("kim")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(each.in_use("kim"), 0);
    drop(first);
    assert_eq!((all.in_use("all"), each.in_use("ada")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_for_its_second_permit_gives_the_first_back() {
    let (all, each) = (InFlight::new("all", 5).unwrap(), InFlight::new("each", 1).unwrap());
    let limit = InFlightLimit::new(each.clone()).key(by_header()).wait_up_to(Duration::from_secs(60));
    let layer = InFlightLayer::new(all.clone()).key(Key::from("all")).and(limit);
    let mut service = layer.layer(service_fn(hello));
    let held = send(&service, from("ada")).await;
    let mut waiting = Box::pin(service.ready().await.unwrap().call(from("ada")));
    assert!(tokio::time::timeout(Duration::ZERO, &mut waiting).await.is_err());
    assert_eq!(all.in_use("all"), 2);
    drop(waiting);
    assert_eq!((all.in_use("all"), each.in_use("ada")), (1, 1));
    let waiting = tokio::spawn(service.ready().await.unwrap().call(from("ada")));
    tokio::task::yield_now().await;
    drop(held);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_takes_one_permit_of_a_number_for_the_same_key_and_an_upgrade_holds_all() {
    let uploads = InFlight::new("uploads", 1).unwrap();
    let by_key = || InFlightLimit::new(uploads.clone()).key(by_header());
    let layer = InFlightLayer::new(by_key()).and(InFlight::new("other", 2).unwrap()).key(Key::from("all"));
    let layer = layer.and(by_key()).and(by_key().only_if(|_| false));
    let keep = Arc::new(Mutex::new(Vec::new()));
    let service = {
        let keep = Arc::clone(&keep);
        layer.layer(service_fn(move |request: Request<()>| {
            keep.lock().unwrap().extend(request.extensions().get::<HeldPermit>().cloned());
            ready(Ok::<_, Infallible>(Response::new(Body::default())))
        }))
    };
    let mut upgrade = from("ada");
    upgrade.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
    upgrade.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
    let response = service.clone().oneshot(upgrade).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    drop(response);
    let other = field(&send(&service, from("bob")).await, "ratelimit").to_owned();
    assert_eq!((uploads.in_use("ada"), &*other), (1, r#""uploads";r=0, "other";r=0"#));
    keep.lock().unwrap().clear();
    assert_eq!(uploads.in_use("ada"), 0);
}

#[tokio::test]
async fn limits_that_are_swapped_bring_their_fields_and_a_request_keeps_those_it_began_with() {
    let (all, _, layer) = two(5, 1);
    let handle = layer.limits_handle();
    let limit = || InFlightLimit::new(all.clone()).key(Key::from("all"));
    let with = |fields| handle.swap_with(InFlightLimits::new([limit()]).headers(fields));
    let swapping = layer.clone().layer(service_fn(|request: Request<()>| {
        with(HeaderFields::None);
        hello(request)
    }));
    let began_with_all = send(&swapping, from("ada")).await;
    assert!(began_with_all.headers().contains_key("ratelimit"));
    let service = layer.headers(HeaderFields::Ietf).layer(service_fn(hello));
    assert!(send(&service, from("ada")).await.headers().is_empty(), "the limits say none");
    all.set_permits(1).unwrap();
    for (fields, on_refusal) in [(HeaderFields::None, false), (HeaderFields::AllOnRefusal, true)] {
        with(fields);
        let refused = send(&service, from("ada")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers().contains_key("ratelimit"), on_refusal, "{fields:?}");
    }
}

#[tokio::test]
async fn limits_that_are_swapped_hold_for_requests_that_begin_after_it() {
    let (all, each, layer) = two(5, 1);
    let service = layer.layer(service_fn(hello));
    let first = send(&service, from("ada")).await;
    let handle = layer.limits_handle();
    handle.swap([InFlightLimit::new(all.clone()).key(Key::from("all"))]);
    let second = send(&service, from("ada")).await;
    assert_eq!(field(&second, "ratelimit"), r#""all";r=3"#);
    assert_eq!((all.in_use("all"), each.in_use("ada")), (2, 1));
    drop(first);
    assert_eq!((all.in_use("all"), each.in_use("ada")), (1, 0));
    handle.swap([]);
    let third = send(&service, from("ada")).await;
    assert!(!third.headers().contains_key("ratelimit") && !third.body().is_holding());
}

#[tokio::test]
async fn a_layer_with_one_limit_more_keeps_what_is_known_of_those_of_its_handle() {
    let [reports, uploads, all] = ["reports", "uploads", "all"].map(|name| InFlight::new(name, 5).unwrap());
    let limit = |of: &InFlight| InFlightLimit::new(of.clone()).key(Key::from("all"));
    let handle = InFlightHandle::new([]);
    // The place 2 is none of theirs.
    handle.swap_with(InFlightLimits::new([limit(&reports), limit(&uploads)]).select(
        |request: RequestView<'_>| match request.path() {
            "/report" => Selected::from_iter([2, 0]),
            _ => Selected::default(),
        },
    ));
    let changed = InFlightLayer::from(handle.clone()).key(Key::from("other"));
    let more = InFlightLayer::from(handle).and(limit(&all)).wait_up_to(Duration::ZERO);
    for (layer, path, counted) in [
        (&changed, "/", [0, 0, 0]),
        (&changed, "/report", [1, 0, 0]),
        (&more, "/", [0, 0, 1]),
        (&more, "/report", [1, 0, 1]),
    ] {
        let request = Request::get(path).body(()).unwrap();
        let held = layer.layer(service_fn(hello)).oneshot(request).await.unwrap();
        assert_eq!([&reports, &uploads, &all].map(|of| of.in_use("all")), counted, "{path}");
        drop(held);
    }
}
