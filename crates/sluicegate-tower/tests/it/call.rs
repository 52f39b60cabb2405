//! Services that are not HTTP.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::ready;
use std::time::Duration;

use sluicegate_core::RateLimiter;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::store::{Ask, DecisionFuture, QuotaStatus, judge};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Key, MemoryStore, OnExceeded, OnOutage, Outcome, Policy};
use sluicegate_in_flight::adaptive::LimitAlgorithm;
use sluicegate_in_flight::{Class, InFlight, NoPermitKind};
use sluicegate_tests::around;
use sluicegate_tests::time::Paused;
use sluicegate_tower::call::{CallError, CallInFlightLayer, CallKey, CallLimitLayer};
use sluicegate_tower::guard::Guarded;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::strict::Strict;
use crate::support::{broken, limiter, slow};

#[derive(Clone)]
struct Job {
    tenant: &'static str,
    pages: u64,
}

fn job(tenant: &'static str, pages: u64) -> Job {
    Job { tenant, pages }
}

/// A printer behind a limit on pages.
fn printer(limiter: RateLimiter) -> (Guarded<Strict, CallLimitLayer<impl CallKey<Job>>>, Strict) {
    let printer = Strict::default();
    let layer = CallLimitLayer::new(limiter, |job: &Job| job.tenant).cost(|job: &Job| job.pages);
    (layer.layer(printer.clone()), printer)
}

type Outcomes = Result<http::Response<crate::support::Body>, CallError<Infallible>>;

async fn print<M: CallKey<Job>>(printer: &Guarded<Strict, CallLimitLayer<M>>, job: Job) -> Outcomes {
    printer.clone().oneshot(job).await
}

#[tokio::test(start_paused = true)]
async fn a_call_spends_its_cost_from_the_bucket_of_its_key() {
    let limiter = limiter(Policy::gcra("pages", "100/h"));
    let (service, inner) = printer(limiter.clone());
    print(&service, job("ada", 60)).await.unwrap();
    print(&service, job("bob", 90)).await.unwrap();
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 40);
    let refused = print(&service, job("ada", 41)).await.unwrap_err();
    assert!(refused.is_refusal());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(36)));
    assert_eq!(refused.to_string(), "the rate limit is exceeded: try again in 36s");
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 40, "a refused call spends nothing");
    assert_eq!(inner.calls(), 2, "the service is not called");
    print(&service, job("ada", 40)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_can_never_fit_says_so() {
    let (service, _) = printer(limiter(Policy::gcra("pages", "100/h")));
    let refused = print(&service, job("ada", 101)).await.unwrap_err();
    assert_eq!(refused.decision().unwrap().outcome(), Outcome::Impossible);
    assert_eq!(refused.retry_after(), None);
    assert_eq!(
        refused.to_string(),
        "the call costs more than the 100 units that its limit ever lets pass at once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_waits_makes_calls_wait_in_the_order_in_which_they_came() {
    for limiter in [limiter, slow] {
        let waits = Policy::gcra("pages", "1/s").wait_up_to(Duration::from_secs(3));
        let (mut service, _) = printer(limiter(waits));
        let start = Instant::now();
        let mut calls = Vec::new();
        for _ in 0..5 {
            let call = service.ready().await.unwrap().call(job("ada", 1));
            calls.push(tokio::spawn(async move { (call.await.is_ok(), start.elapsed().as_secs()) }));
        }
        let mut seen = Vec::new();
        for call in calls {
            seen.push(call.await.unwrap());
        }
        assert_eq!(seen, [(true, 0), (true, 1), (true, 2), (true, 3), (false, 0)]);
    }
}

#[tokio::test]
async fn while_the_store_cannot_be_reached_the_policy_decides() {
    for at_once in [true, false] {
        for (action, passes) in [(OnOutage::Allow, true), (OnOutage::Local, true), (OnOutage::Deny, false)] {
            let (service, inner) = printer(broken(Policy::gcra("pages", "1/h").on_outage(action), at_once));
            let result = print(&service, job("ada", 1)).await;
            assert_eq!((result.is_ok(), inner.calls()), (passes, usize::from(passes)), "{action:?}");
            if let Err(error) = result {
                assert_eq!(error.to_string(), "the rate limiter gave no answer");
                assert_eq!(error.source().unwrap().to_string(), "the store cannot be reached");
            }
        }
    }
}

#[tokio::test]
async fn a_decision_that_nobody_made_is_an_outage() {
    for (outcome, action, passes) in [
        (Outcome::Allowed, OnOutage::Allow, true),
        (Outcome::Denied, OnOutage::Local, false),
        (Outcome::Denied, OnOutage::Deny, false),
    ] {
        // A store that says of every decision that nobody made it.
        let store = around::around(MemoryStore::new(), move |_: &Within, _: &[Ask<'_>]| {
            let rest = QuotaStatus::at_rest((0, 0), 1);
            let status = if outcome == Outcome::Allowed { rest } else { rest.refused_for_us(0) };
            DecisionFuture::ready(Ok(judge(0, 0, [status]).by(DecidedBy::Outage)))
        });
        let (service, _) = printer(Policy::gcra("pages", "1/h").on_outage(action).on(store).unwrap());
        match print(&service, job("ada", 1)).await {
            Ok(_) => assert!(passes, "{outcome:?} {action:?}"),
            Err(CallError::Store(error)) => {
                assert!(!passes && error.kind() == StoreErrorKind::Unavailable, "{outcome:?} {action:?}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_counts_and_holds_nothing_back() {
    for wait in [None, Some(Duration::from_secs(60))] {
        let mut policy = Policy::gcra("pages", "1/h").shadow();
        if let Some(wait) = wait {
            policy = policy.wait_up_to(wait);
        }
        let limiter = limiter(policy);
        let (service, inner) = printer(limiter.clone());
        let start = Instant::now();
        for _ in 0..3 {
            print(&service, job("ada", 1)).await.unwrap();
        }
        assert_eq!((inner.calls(), start.elapsed()), (3, Duration::ZERO));
        assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_off_holds_no_call_back_and_counts_none() {
    for wait in [OnExceeded::Deny, OnExceeded::Wait { longest: Duration::from_secs(60) }] {
        let limiter = limiter(Policy::gcra("pages", "1/h").on_exceeded(wait).mode(PolicyMode::Off));
        let (service, inner) = printer(limiter.clone());
        let start = Instant::now();
        for _ in 0..3 {
            print(&service, job("ada", 1)).await.unwrap();
        }
        assert_eq!((inner.calls(), start.elapsed()), (3, Duration::ZERO));
        limiter.replace(limiter.policy().in_mode(PolicyMode::Enforce), Inherit::Spent).unwrap();
        assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 1);
    }
}

#[derive(Debug)]
struct Jammed(fmt::Error);

impl fmt::Display for Jammed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the printer is jammed")
    }
}

impl Error for Jammed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_service_pass_and_a_chain_prints_each_message_once() {
    let limiter = limiter(Policy::gcra("pages", "5/h"));
    let jammed = service_fn(|_: Job| ready(Err::<(), _>(Jammed(fmt::Error))));
    let service = CallLimitLayer::new(limiter.clone(), |job: &Job| job.tenant).layer(jammed);
    let error = service.oneshot(job("ada", 1)).await.unwrap_err();
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        chain.push(error.to_string());
        next = error.source();
    }
    assert_eq!(chain, ["the printer is jammed".to_owned(), fmt::Error.to_string()]);
    assert!(!error.is_refusal() && error.into_inner().is_some());
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 4, "what failed was spent");
}

#[tokio::test(start_paused = true)]
async fn boxed_errors_stay_what_they_were() {
    let jobs = limiter(Policy::gcra("jobs", "1/h"));
    let jammed = service_fn(|_: Job| ready(Err::<(), BoxError>(Jammed(fmt::Error).into())));
    let mut service = ServiceBuilder::new()
        .map_err(CallError::into_box)
        .layer(CallLimitLayer::new(jobs, |job: &Job| job.tenant))
        .service(jammed);
    let jammed = service.ready().await.unwrap().call(job("ada", 1)).await.unwrap_err();
    assert!(jammed.is::<Jammed>());
    let refused = service.ready().await.unwrap().call(job("ada", 1)).await.unwrap_err();
    let refused = refused.downcast::<CallError<Infallible>>().unwrap();
    assert!(matches!(*refused, CallError::Limited(_)));
}

#[tokio::test(start_paused = true)]
async fn clones_of_layer_and_service_share_their_buckets() {
    let layer = CallLimitLayer::new(limiter(Policy::gcra("jobs", "2/h")), |tenant: &u64| Key::from(*tenant));
    let (service, sibling) = (layer.layer(Strict::default()), layer.clone().layer(Strict::default()));
    service.clone().oneshot(7).await.unwrap();
    sibling.oneshot(7).await.unwrap();
    assert!(service.oneshot(7).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_of_nothing_passes_even_in_debt() {
    let limiter = limiter(Policy::gcra("pages", "100/h"));
    let _ = limiter.charge("ada", 250).await.unwrap();
    let (service, inner) = printer(limiter.clone());
    print(&service, job("ada", 0)).await.unwrap();
    assert_eq!(inner.calls(), 1);
}

/// A service that takes a second.
async fn for_a_second(job: Job) -> Result<u64, &'static str> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    if job.pages == 0 { Err("no pages") } else { Ok(job.pages) }
}

#[tokio::test(start_paused = true)]
async fn a_call_too_many_fails_or_waits_and_each_end_of_a_call_gives_its_permit_back() {
    let prints = InFlight::new("prints", 1).unwrap();
    let limit = prints.clone();
    let at_once = CallInFlightLayer::new(move |job: &Job| limit.request(job.tenant));
    let waits = at_once.clone().wait_up_to(Duration::from_millis(2_500));
    let [at_once, waits] = [at_once, waits].map(|layer| layer.layer(service_fn(for_a_second)));
    let first = tokio::spawn(at_once.clone().oneshot(job("ada", 1)));
    tokio::task::yield_now().await;
    let refused = at_once.clone().oneshot(job("ada", 2)).await.unwrap_err();
    assert!(matches!(&refused, CallError::NoPermit(none) if none.kind() == NoPermitKind::Permits));
    assert!(refused.is_refusal() && refused.retry_after().is_none());
    let told = "all permits of \"prints\" are out: at most 1 at once";
    assert_eq!(refused.to_string(), told);
    assert_eq!(at_once.oneshot(job("bob", 3)).await.unwrap(), 3, "keys do not wait for each other");
    assert_eq!(first.await.unwrap().unwrap(), 1);
    // One works, one fails, one works; the fourth has waited in vain.
    let begun = Instant::now();
    let calls = [1, 0, 2, 3].map(|pages| tokio::spawn(waits.clone().oneshot(job("ada", pages))));
    let mut ends = Vec::new();
    for call in calls {
        ends.push(call.await.unwrap().map_err(|error| error.to_string()));
        assert_eq!(begun.elapsed().as_secs(), ends.len().min(3) as u64);
    }
    assert_eq!(ends, [Ok(1), Err("no pages".to_owned()), Ok(2), Err(told.to_owned())]);
    let dropped = tokio::spawn(waits.oneshot(job("ada", 1)));
    tokio::task::yield_now().await;
    assert_eq!(prints.in_use("ada"), 1);
    dropped.abort();
    assert!(dropped.await.is_err());
    assert_eq!(prints.in_use_in_all(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_answered_with_a_fault_lower_a_number_that_adapts_and_those_that_fail_do_not() {
    for (pages, least_fault, expected) in [(0, 99, 10), (7, 99, 10), (7, 7, 9)] {
        let partner = InFlight::adaptive("partner").algorithm(LimitAlgorithm::Aimd).first(10);
        let partner = partner.clock(Paused::now()).build().unwrap();
        partner.try_acquire("rest").unwrap().answered(sluicegate_in_flight::adaptive::Outcome::Good);
        tokio::time::advance(Duration::from_secs(10)).await;
        let asked = partner.clone();
        let layer = CallInFlightLayer::new(move |job: &Job| asked.request(job.tenant))
            .fault_if(move |pages: &u64| *pages >= least_fault);
        let result = layer.layer(service_fn(for_a_second)).oneshot(job("ada", pages)).await;
        assert_eq!(result.is_ok(), pages > 0);
        assert_eq!((partner.permits(), partner.in_use_in_all()), (expected, 0), "{pages} {least_fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_under_a_number_that_adapts_wait_by_class_and_are_told_when_to_come_back() {
    let pool = InFlight::adaptive("pool").at_least(1).at_most(1).clock(Paused::now());
    let pool = pool.wait_up_to(Duration::from_millis(1_500)).build().unwrap();
    let layer = CallInFlightLayer::new(move |job: &Job| {
        let class = if job.tenant == "batch" { Class::Sheddable } else { Class::Critical };
        pool.request(job.tenant).class(class)
    });
    let service = layer.layer(service_fn(for_a_second));
    let calls =
        ["first", "batch", "user"].map(|tenant| tokio::spawn(service.clone().oneshot(job(tenant, 1))));
    let mut ends = Vec::new();
    for call in calls {
        ends.push(call.await.unwrap());
    }
    assert!(ends[0].is_ok() && ends[2].is_ok());
    let shed = ends[1].as_ref().unwrap_err();
    assert!(matches!(shed, CallError::NoPermit(_)) && shed.retry_after().is_some(), "{shed}");
}
