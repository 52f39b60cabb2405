//! Tests of an instance with scripted grants: without a store, on a stopped clock.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::store::{DemandsOf, PermitDemand, PermitGrant};

use super::*;
use crate::in_flight::NamedPermits;
use crate::{Acquire, InFlight, NoPermit, Permit};

struct Instance {
    jobs: InFlight,
    shared: Arc<InstancePermits>,
    clock: ManualClock,
}

fn instance(on_outage: OnOutage) -> Instance {
    let (clock, reports) = (ManualClock::new(), Arc::<Reports>::default());
    let sharing = Sharing { on_outage, replicas: 4, ..Sharing::default() };
    let own: Arc<dyn Clock> = Arc::new(clock.clone());
    let fixed = FixedPermits { number: 8, queue: 3, queue_in_all: 5 };
    let shared = InstancePermits::new("jobs".into(), fixed, sharing, own, Arc::clone(&reports));
    let shared = Arc::new(shared);
    let pool: Arc<dyn PermitPool> = Arc::clone(&shared) as _;
    let inner = NamedPermits { name: "jobs".into(), pool, service: None, sharing: Some(sharing), reports };
    Instance { jobs: InFlight(Arc::new(inner)), shared, clock }
}

impl Instance {
    fn attempt(&self, key: &str) -> Acquire {
        self.jobs.request(key).attempt()
    }

    /// The only demand that has changed.
    fn demand(&self) -> PermitDemand {
        let mut demands = self.shared.demands(DemandsOf::Changed);
        assert_eq!(demands.len(), 1, "{demands:?}");
        demands.remove(0)
    }

    fn grant(&self, held: u64) -> PermitDemand {
        let demand = self.demand();
        self.shared.answer(&demand, PermitGrant::new(held, 0, 0));
        demand
    }

    /// This many permits, granted by the store.
    fn held(&self, key: &str, permits: u64) -> Vec<Permit> {
        let asked: Vec<_> = (0..permits).map(|_| self.attempt(key)).collect();
        assert_eq!(self.grant(permits).wanted, permits);
        asked.into_iter().map(|mut asked| given(&mut asked)).collect()
    }
}

fn poll(acquire: &mut Acquire) -> Poll<Result<Permit, NoPermit>> {
    pin!(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

fn given(acquire: &mut Acquire) -> Permit {
    let Poll::Ready(Ok(permit)) = poll(acquire) else { panic!("it has no permit") };
    permit
}

fn refused(acquire: &mut Acquire) -> NoPermitKind {
    let Poll::Ready(Err(none)) = poll(acquire) else { panic!("it is not refused") };
    none.kind()
}

#[test]
fn what_the_store_grants_goes_to_the_first_who_asked_and_attempts_wait_for_no_more() {
    let it = instance(OnOutage::Local);
    assert_eq!(it.jobs.try_acquire("ada").unwrap_err().kind(), NoPermitKind::Shared);
    assert_eq!(it.grant(0).wanted, 0);
    let (mut first, mut second, mut third) =
        (it.jobs.acquire("ada"), it.attempt("ada"), it.jobs.acquire("ada"));
    assert!(poll(&mut first).is_pending());
    let demand = it.demand();
    assert_eq!((demand.in_use, demand.wanted, demand.waiting), (0, 3, 2));
    // It arrived while the store was asked, and waits for the next answer.
    let mut fourth = it.attempt("ada");
    it.shared.answer(&demand, PermitGrant::new(1, 0, 0));
    let permit = given(&mut first);
    assert_eq!(refused(&mut second), NoPermitKind::Permits);
    assert!(poll(&mut third).is_pending() && poll(&mut fourth).is_pending());
    drop(permit);
    let third = given(&mut third);
    assert_eq!((it.jobs.in_use("ada"), it.jobs.remaining("ada"), it.jobs.keys()), (1, 0, 1));
    assert_eq!(it.grant(1).wanted, 2);
    assert_eq!(refused(&mut fourth), NoPermitKind::Permits);
    drop(third);
    let demand = it.grant(0);
    assert_eq!((demand.in_use, demand.wanted), (0, 0), "it is given back");
    assert!(it.shared.demands(DemandsOf::All).is_empty() && it.shared.lock().keys.is_empty());
}

#[test]
fn the_queue_of_an_instance_is_bounded_and_attempts_are_not_of_it() {
    let it = instance(OnOutage::Local);
    let attempts: Vec<_> = (0..10).map(|_| it.attempt("ada")).collect();
    let waits: Vec<_> = (0..3).map(|_| it.jobs.acquire("ada")).collect();
    assert_eq!(refused(&mut it.jobs.acquire("ada")), NoPermitKind::Queue);
    let of_bob: Vec<_> = (0..2).map(|_| it.jobs.acquire("bob")).collect();
    assert_eq!(refused(&mut it.jobs.acquire("cyd")), NoPermitKind::Queue, "of all keys together");
    drop((attempts, waits, of_bob));
    assert_eq!(it.shared.demands(DemandsOf::All).len(), 2);
    assert!(!it.shared.is_waiting());
}

#[test]
fn a_permit_that_is_owed_goes_back_and_the_next_is_for_those_who_wait_here() {
    let it = instance(OnOutage::Local);
    let mut permits = it.held("ada", 3);
    let mut waits: Vec<_> = (0..3).map(|_| it.jobs.acquire("ada")).collect();
    it.shared.answer(&it.demand(), PermitGrant::new(3, 0, 2));
    drop(permits.pop());
    assert!(poll(&mut waits[0]).is_pending());
    // The second comes back while the first is reported to the store.
    let demand = it.demand();
    assert_eq!((demand.in_use, demand.wanted), (2, 5));
    drop(permits.pop());
    it.shared.answer(&demand, PermitGrant::new(2, 0, 1));
    assert!(poll(&mut waits[0]).is_pending());
    assert_eq!(it.grant(1).in_use, 1);
    drop(permits);
    let _first = given(&mut waits[0]);
    assert!(poll(&mut waits[1]).is_pending());
}

#[tokio::test]
async fn when_the_store_grants_less_the_newest_permits_are_lost_and_their_holders_told() {
    let it = instance(OnOutage::Local);
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    it.jobs.listen(Arc::new(move |event: &Event<'_>| {
        if matches!(event, Event::PermitLost(Subject { policy: Some("jobs"), key: Some(_), .. })) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let permits = it.held("ada", 3);
    let demands = it.shared.demands(DemandsOf::All);
    it.shared.answer(&demands[0], PermitGrant::new(2, 0, 0));
    assert_eq!(permits.iter().map(Permit::is_lost).collect::<Vec<_>>(), [false, false, true]);
    permits[2].lost().await;
    assert!(pin!(permits[0].lost()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!((it.jobs.in_use("ada"), it.jobs.lost(), told.load(Ordering::Relaxed)), (3, 1, 1));
    assert_eq!(it.shared.demands(DemandsOf::All)[0].in_use, 2, "what is lost is not claimed");
    drop(permits);
    assert_eq!(it.jobs.in_use("ada"), 0);
}

#[test]
fn a_lease_counts_from_the_call_and_when_it_is_over_all_permits_are_lost() {
    let it = instance(OnOutage::Local);
    let asked = it.attempt("ada");
    let demand = it.demand();
    it.clock.advance(Duration::from_secs(5)); // the answer takes long
    it.shared.answer(&demand, PermitGrant::new(1, 7, 0));
    let permit = given(&mut { asked });
    assert_eq!(it.shared.expire(), Some(Duration::from_secs(10)));
    it.clock.advance(Duration::from_secs(9));
    assert!(!permit.is_lost());
    it.clock.advance(Duration::from_secs(1));
    assert!(permit.is_lost(), "also before the task of the store has run");
    let demands = it.shared.demands(DemandsOf::All);
    assert_eq!(
        (demands[0].in_use, it.shared.expire(), it.jobs.lost()),
        (0, None, 1),
        "it is not claimed again"
    );
    assert!(poll(&mut it.attempt("ada")).is_pending(), "nothing is given out under an old lease");
}

#[test]
fn in_an_outage_permits_are_given_as_the_limit_says() {
    let ask = |it: &Instance| {
        let (mut attempts, mut waits) = (Vec::new(), it.jobs.acquire("ada"));
        attempts.extend((0..10).map(|_| it.attempt("ada")));
        it.shared.unanswered(&[it.demand()]);
        attempts.insert(0, it.attempt("ada"));
        let waits = poll(&mut waits);
        (
            waits,
            attempts
                .iter_mut()
                .map(poll)
                .filter_map(|poll| match poll {
                    Poll::Ready(result) => Some(result),
                    Poll::Pending => None,
                })
                .collect::<Vec<_>>(),
        )
    };
    let it = instance(OnOutage::Local);
    let (first, rest) = ask(&it);
    assert!(matches!(first, Poll::Ready(Ok(_))));
    assert_eq!(
        (rest.len(), rest.iter().filter(|result| result.is_ok()).count()),
        (11, 1),
        "a fourth of 8 in all"
    );
    let of_all = |results: &[Result<Permit, NoPermit>], kind| {
        results.iter().filter_map(|result| result.as_ref().err()).all(|none| none.kind() == kind)
    };
    assert!(of_all(&rest, NoPermitKind::Permits));
    // A waiting request waits until a permit comes back.
    let mut waits = it.jobs.acquire("ada");
    assert!(poll(&mut waits).is_pending());
    drop(first);
    drop(given(&mut waits));

    let (first, rest) = ask(&instance(OnOutage::Allow));
    assert!(matches!(first, Poll::Ready(Ok(_))) && rest.len() == 11 && rest.iter().all(Result::is_ok));

    let it = instance(OnOutage::Deny);
    let (first, rest) = ask(&it);
    assert!(matches!(first, Poll::Ready(Err(none)) if none.kind() == NoPermitKind::Outage));
    assert!(rest.len() == 11 && rest.iter().all(Result::is_err) && of_all(&rest, NoPermitKind::Outage));
    // The next request tests whether there are answers again.
    it.shared.resume();
    assert!(poll(&mut it.attempt("ada")).is_pending());
}

#[test]
fn permits_of_an_outage_are_claimed_afterwards_and_have_no_lease_before() {
    let it = instance(OnOutage::Local);
    let mut permits = it.held("ada", 1);
    let mut asked = it.attempt("ada");
    it.shared.unanswered(&[it.demand()]);
    permits.push(given(&mut asked));
    it.clock.advance(Duration::from_secs(15));
    it.shared.expire();
    assert_eq!([permits[0].is_lost(), permits[1].is_lost()], [true, false]);
    let demand = it.shared.demands(DemandsOf::All).remove(0);
    assert_eq!((demand.in_use, demand.wanted), (1, 1));
    it.shared.answer(&demand, PermitGrant::new(0, 0, 0));
    assert!(permits[1].is_lost(), "others have all of them");
}

#[test]
fn one_who_gives_up_takes_no_permit_along() {
    let it = instance(OnOutage::Local);
    let permits = it.held("ada", 1);
    let (first, mut second) = (it.jobs.acquire("ada"), it.jobs.acquire("ada"));
    drop(permits);
    drop(first); // it had the permit but was not polled
    let permit = given(&mut second);
    assert_eq!(it.jobs.in_use("ada"), 1);
    drop((permit, it.jobs.acquire("ada")));
    let demand = it.grant(0);
    assert_eq!((demand.in_use, demand.wanted, it.jobs.keys()), (0, 0, 0));
}

#[tokio::test]
async fn when_the_last_handle_is_dropped_what_is_left_is_told_and_the_task_may_end() {
    let it = instance(OnOutage::Local);
    let permits = it.held("ada", 2);
    let Instance { jobs, shared, .. } = it;
    drop(jobs);
    assert!(!shared.is_closed(), "permits are out");
    drop(permits);
    poll_fn(|cx| shared.poll_changed(cx)).await;
    assert!(shared.is_closed());
    let demands = shared.demands(DemandsOf::Changed);
    assert_eq!((demands.len(), demands[0].in_use), (1, 0));
}
