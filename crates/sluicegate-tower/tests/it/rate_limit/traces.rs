//! The spans of requests and of waits, in processes that nothing else logs in.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{OnOutage, Policy, RateLimiter};
use sluicegate_observed::Observed;
use sluicegate_resilient::Resilient;
use sluicegate_tests::around;
use sluicegate_tests::process::alone;
use sluicegate_tower::call::{CallError, CallLimitLayer};
use sluicegate_tower::key::{OnMissingKey, RequestView};
use sluicegate_tower::limits::Limits;
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use sluicegate_tower::respond::{GrpcStatus, HeaderFields};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::task::yield_now;
use tower::{Layer, Service, ServiceExt, service_fn};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::support::spans::Spans;
use crate::support::{Body, Handler, anonymous, broken, by_header, from, limiter, on, paused_store};

/// The span of a request, with all fields, as a service declares them.
fn span() -> Span {
    info_span!(
        "request",
        rate_limit.policy = Empty,
        rate_limit.outcome = Empty,
        rate_limit.remaining = Empty,
        rate_limit.decided_by = Empty,
        rate_limit.wait_ms = Empty,
    )
}

/// The sorted fields that a request's span has got.
fn sorted(fields: &str) -> String {
    let mut fields: Vec<_> = fields.split(' ').collect();
    fields.sort_unstable();
    fields.join(" ")
}

/// The status of a request in a span, and the fields of that span.
async fn traced<S>(spans: &Spans, service: &S, request: Request<()>) -> (u16, String)
where
    S: Service<Request<()>, Response = Response<Body>> + Clone,
    S::Error: std::fmt::Debug,
{
    let status = service.clone().oneshot(request).instrument(span()).await.unwrap().status();
    let seen = spans.named("request");
    assert!(seen.len() == 1 && seen[0].is_over, "{seen:?}");
    (status.as_u16(), sorted(&seen[0].fields()))
}

/// Runs a test on a runtime whose time is paused.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(test);
}

/// A layer that shows nothing, and so keeps no decision.
fn quiet(layer: RateLimitLayerBuilder) -> RateLimitLayerBuilder {
    layer.headers(HeaderFields::None).without_extensions()
}

fn hourly(name: &str, quota: &str) -> RateLimiter {
    limiter(Policy::fixed_window(name, quota))
}

#[test]
fn a_span_gets_the_decision_on_its_request_once_if_it_declares_the_outcome() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let decided = "decided_by=store outcome=allowed policy=api remaining=0 wait_ms=0";
            for layer in [
                RateLimitLayer::new(by_header(hourly("api", "1/h"))),
                quiet(RateLimitLayer::builder(by_header(hourly("api", "1/h")))).build().unwrap(),
                RateLimitLayer::new(by_header(crate::support::slow(Policy::fixed_window("api", "1/h")))),
            ] {
                let service = layer.layer(Handler::default());
                assert_eq!(traced(&spans, &service, from("ada")).await, (200, decided.to_owned()));
                let (status, fields) = traced(&spans, &service, from("ada")).await;
                let (before, wait_ms) = fields.rsplit_once('=').unwrap();
                assert_eq!(
                    (status, before),
                    (429, "decided_by=store outcome=rejected policy=api remaining=0 wait_ms")
                );
                assert!(wait_ms.parse::<u64>().unwrap() > 0);
                // Other spans get nothing, or as much as they declare.
                let bob = service.clone().oneshot(from("bob"));
                bob.instrument(info_span!("few", rate_limit.outcome = Empty, path = "/")).await.unwrap();
                let eve = service.clone().oneshot(from("eve"));
                eve.instrument(info_span!("none", rate_limit.policy = Empty)).await.unwrap();
                service.clone().oneshot(from("joe")).await.unwrap();
                let seen: Vec<_> = spans.take().iter().map(|span| span.fields()).collect();
                assert_eq!(seen, ["path=/ outcome=allowed", ""]);
            }
        });
    });
}

#[test]
fn of_several_limits_the_span_names_the_one_that_refuses_or_the_tightest() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let policy = |fields: &str| {
                let field = |name: &str| {
                    fields.split(' ').find_map(|field| field.strip_prefix(name)).unwrap().to_owned()
                };
                (field("policy="), field("outcome="), fields.split(' ').count())
            };
            let named = |name: &str, outcome: &str| (name.to_owned(), outcome.to_owned(), 5);

            let store = paused_store();
            let limit = |name, quota| by_header(on(&store, Policy::fixed_window(name, quota)));
            let together = RateLimitLayer::builder(limit("wide", "9/h")).and(limit("tight", "1/h"));
            let together = together.build().unwrap().layer(Handler::default());
            let fields = traced(&spans, &together, from("ada")).await.1;
            assert_eq!(policy(&fields), named("tight", "allowed"));
            let fields = traced(&spans, &together, from("ada")).await.1;
            assert_eq!(policy(&fields), named("tight", "rejected"));

            // One around the other, with fields in responses and without.
            for is_quiet in [false, true] {
                let stacked = |outer, inner| {
                    let inner = RateLimitLayer::new(by_header(hourly("inner", inner)));
                    let outer = RateLimitLayer::builder(by_header(hourly("outer", outer)));
                    let outer = if is_quiet { quiet(outer) } else { outer };
                    outer.build().unwrap().layer(inner.layer(Handler::default()))
                };
                let service = stacked("9/h", "1/h");
                let fields = traced(&spans, &service, from("ada")).await.1;
                assert_eq!(policy(&fields), named("inner", "allowed"));
                let fields = traced(&spans, &service, from("ada")).await.1;
                assert_eq!(policy(&fields), named("inner", "rejected"));
                let service = stacked("9/h", "99/h");
                let fields = traced(&spans, &service, from("ada")).await.1;
                assert_eq!(policy(&fields), named("outer", "allowed"));
            }
        });
    });
}

#[test]
fn a_span_says_why_nothing_was_decided_and_nothing_where_no_limit_is_in_force() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let store = paused_store();
            let shadow = || by_header(on(&store, Policy::fixed_window("tried", "1/h").shadow()));
            let api = by_header(on(&store, Policy::fixed_window("api", "9/h")));
            let only = |limit: Limit| RateLimitLayer::new(limit).layer(Handler::default());
            let unlimited = only(by_header(hourly("x", "1/h")).only_if(|_: RequestView<'_>| false));
            for service in [only(shadow()), unlimited] {
                for _ in 0..2 {
                    assert_eq!(traced(&spans, &service, from("ada")).await, (200, String::new()));
                }
            }
            let beside =
                RateLimitLayer::builder(api).and(shadow()).build().unwrap().layer(Handler::default());
            let decided = "decided_by=store outcome=allowed policy=api remaining=8 wait_ms=0";
            assert_eq!(traced(&spans, &beside, from("ada")).await, (200, decided.to_owned()));

            let keyed = by_header(hourly("keyed", "1/h"))
                .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
            let refused = traced(&spans, &only(keyed), anonymous()).await;
            assert_eq!(refused, (401, "outcome=missing_key policy=keyed".to_owned()));
        });
    });
}

#[test]
fn in_an_outage_the_span_says_by_whom_it_was_decided() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let away = |outage| Policy::fixed_window("api", "9/h").on_outage(outage);
            for at_once in [true, false] {
                let only = |outage| {
                    RateLimitLayer::new(by_header(broken(away(outage), at_once))).layer(Handler::default())
                };
                let allowed = traced(&spans, &only(OnOutage::Allow), from("ada")).await;
                assert_eq!(
                    allowed,
                    (200, "decided_by=outage outcome=allowed policy=api wait_ms=0".to_owned())
                );
                let denied = traced(&spans, &only(OnOutage::Deny), from("ada")).await;
                assert_eq!(denied, (503, "outcome=outage".to_owned()));

                let store = Resilient::new(around::broken(at_once));
                let store = Observed::named(format!("away-{at_once}"), store).unwrap();
                let api = Policy::fixed_window("api", "9/h").on(&store).unwrap();
                let service = RateLimitLayer::new(by_header(api)).layer(Handler::default());
                let fallback = "decided_by=fallback outcome=allowed policy=api remaining=8 wait_ms=0";
                assert_eq!(traced(&spans, &service, from("ada")).await, (200, fallback.to_owned()));
            }
        });
    });
}

/// The turn comes, the client leaves, the queue is full, and limits and quotas are replaced meanwhile.
#[test]
fn a_wait_is_a_span_in_that_of_its_request_and_says_what_has_ended_it() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let store = Observed::named("waits", paused_store()).unwrap();
            let mail =
                Policy::gcra("mail", "1/s burst 1").wait_up_to(Duration::from_secs(5)).on(&store).unwrap();
            let limits = || RateLimitLayer::builder(by_header(mail.clone())).longest_queue(1);
            let layer = limits().build().unwrap();
            let service = layer.layer(Handler::default());
            traced(&spans, &service, from("ada")).await;

            let waits = tokio::spawn(service.clone().oneshot(from("ada")).instrument(span()));
            yield_now().await;
            assert_eq!(send_traced(&service, from("ada")).await, 503);
            layer.limits_handle().swap(Limits::new(by_header(hourly("other", "1/h"))));
            let faster =
                Policy::gcra("mail", "2/s burst 1").wait_up_to(Duration::from_secs(5)).build().unwrap();
            mail.replace(faster, Inherit::Spent).unwrap();
            waits.await.unwrap().unwrap();
            let seen = spans.take();
            let delayed = "decided_by=store outcome=delayed policy=mail remaining=0 wait_ms=1000";
            let [request, wait, full] = [&seen[0], &seen[1], &seen[2]];
            assert_eq!((&*sorted(&request.fields()), request.is_over), (delayed, true));
            assert_eq!(sorted(&full.fields()), "outcome=queue_full policy=mail wait_ms=2000");
            assert_eq!((wait.name, wait.parent, wait.is_over), ("rate_limit.wait", Some("request"), true));
            assert_eq!(wait.fields(), "policy=mail wait_ms=1000 ended_by=turn");

            let service = limits().build().unwrap().layer(Handler::default());
            traced(&spans, &service, from("ada")).await;
            let leaves = tokio::spawn(service.clone().oneshot(from("ada")).instrument(span()));
            yield_now().await;
            leaves.abort();
            assert!(leaves.await.unwrap_err().is_cancelled());
            let seen = spans.take();
            let [request, wait] = [&seen[0], &seen[1]];
            assert!(request.fields().contains("outcome=delayed"), "{}", request.fields());
            assert_eq!((wait.name, wait.parent, wait.is_over), ("rate_limit.wait", Some("request"), true));
            assert!(wait.fields().ends_with("ended_by=given_up"), "{}", wait.fields());
        });
    });
}

/// A request that a layer around has let pass waits in one further in, and leaves.
#[test]
fn a_wait_in_a_layer_further_in_is_told_by_the_span_once() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let inner =
                by_header(limiter(Policy::gcra("mail", "1/s burst 1").wait_up_to(Duration::from_secs(5))));
            let inner = RateLimitLayer::new(inner).layer(Handler::default());
            let service = RateLimitLayer::new(by_header(hourly("all", "100/h"))).layer(inner);
            send_traced(&service, from("ada")).await;
            spans.take();
            for leaves in [false, true] {
                let request = tokio::spawn(service.clone().oneshot(from("ada")).instrument(span()));
                yield_now().await;
                if leaves {
                    request.abort();
                }
                assert_eq!(request.await.is_err(), leaves);
                let seen = spans.take();
                let delayed = "decided_by=store outcome=delayed policy=mail remaining=0 wait_ms=1000";
                assert_eq!((seen.len(), &*sorted(&seen[0].fields())), (2, delayed));
            }
        });
    });
}

/// The span that is current belongs to the request that makes the calls.
#[test]
fn calls_to_others_leave_the_span_around_them_alone_and_their_waits_are_in_it() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let mail = || limiter(Policy::gcra("mail", "1/s burst 1").wait_up_to(Duration::from_secs(1)));
            let send = service_fn(async |_: &str| Ok::<_, std::convert::Infallible>("sent"));
            let calls = CallLimitLayer::new(mail(), |to: &&str| to.to_string()).layer(send);
            let fetch =
                service_fn(async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(())));
            let outgoing =
                OutgoingLayer::new().limit(mail()).longest_wait(Duration::from_secs(1)).layer(fetch);
            async {
                let (one, two, three) = (
                    calls.clone().oneshot("ada"),
                    calls.clone().oneshot("ada"),
                    calls.clone().oneshot("ada"),
                );
                let all = tokio::join!(one, two, three);
                assert!(all.0.is_ok() && all.1.is_ok() && matches!(all.2, Err(CallError::Limited(_))));
                let to = || Request::get("https://example.org/").body(()).unwrap();
                let (one, two) = tokio::join!(outgoing.clone().oneshot(to()), outgoing.clone().oneshot(to()));
                assert!(one.is_ok() && two.is_ok());
                let leaves = tokio::time::timeout(Duration::from_millis(1), outgoing.clone().oneshot(to()));
                assert!(leaves.await.is_err());
            }
            .instrument(span())
            .await;
            let seen = spans.take();
            assert_eq!(seen[0].fields(), "", "they are not what was decided about the request");
            let waits: Vec<_> =
                seen[1..].iter().map(|wait| (wait.parent, wait.is_over, wait.fields())).collect();
            let wait = |ended| (Some("request"), true, format!("policy=mail wait_ms=1000 ended_by={ended}"));
            assert_eq!(waits, [wait("turn"), wait("turn"), wait("given_up")]);
        });
    });
}

#[test]
fn a_refusal_in_grpc_is_told_as_any_other() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let limit = by_header(limiter(Policy::gcra("calls", "1/min")));
            let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new()).build().unwrap();
            let service = layer.layer(service_fn(async |_: Request<()>| {
                Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
            }));
            traced(&spans, &service, from("ada")).await;
            let refused = "decided_by=store outcome=rejected policy=calls remaining=0 wait_ms=60000";
            assert_eq!(traced(&spans, &service, from("ada")).await, (200, refused.to_owned()));
        });
    });
}

/// The wait that clients are told, where a layer further in would make them wait longer.
#[test]
fn the_wait_of_a_refusal_is_that_of_its_response() {
    alone(|| {
        let spans = Spans::of_this_process();
        run(async {
            let inner = RateLimitLayer::new(by_header(limiter(Policy::gcra("inner", "1/h burst 2"))));
            let outer = RateLimitLayer::new(by_header(limiter(Policy::gcra("outer", "1/min burst 2"))));
            let service = outer.layer(inner.layer(Handler::default()));
            for _ in 0..2 {
                traced(&spans, &service, from("ada")).await;
            }
            let refused = service.oneshot(from("ada")).instrument(span()).await.unwrap();
            assert_eq!(refused.headers()["retry-after"], "3600");
            let seen = spans.named("request");
            assert!(seen.last().unwrap().fields().contains("wait_ms=3600000"), "{seen:?}");
        });
    });
}

/// The status of a request in a span.
async fn send_traced<S>(service: &S, request: Request<()>) -> u16
where
    S: Service<Request<()>, Response = Response<Body>> + Clone,
    S::Error: std::fmt::Debug,
{
    service.clone().oneshot(request).instrument(span()).await.unwrap().status().as_u16()
}
