//! Permits: never more out than there are, first come, first served, and nothing lost when somebody gives up.

use std::future::Future;
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use sluicegate_in_flight::{Acquire, InFlight, NoPermit, NoPermitKind, Permit};

fn poll(acquire: &mut Acquire) -> Poll<Result<Permit, NoPermit>> {
    pin!(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn under_any_concurrency_never_more_permits_are_out() {
    const THREADS: usize = 8;
    let in_flight = InFlight::new("uploads", 3).unwrap();
    let (out, most, taken) = ([0, 1].map(|_| AtomicU64::new(0)), AtomicU64::new(0), AtomicU64::new(0));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (in_flight, out, most, taken, barrier) = (&in_flight, &out, &most, &taken, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..5_000 {
                    let key = (thread + round) % 2;
                    let Ok(permit) = in_flight.try_acquire(key as u64) else { continue };
                    let now = out[key].fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    taken.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                    out[key].fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert!(most.into_inner() <= 3);
    assert!(taken.into_inner() > 0);
    assert_eq!((in_flight.in_use(0), in_flight.in_use(1), in_flight.keys()), (0, 0, 0));
}

#[tokio::test]
async fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let in_flight = InFlight::new("uploads", 2).unwrap();
    let mut held = vec![in_flight.try_acquire("ada").unwrap(), in_flight.try_acquire("ada").unwrap()];
    let mut waiting: Vec<_> = (0..4).map(|_| in_flight.acquire("ada")).collect();
    for turn in 0..4 {
        assert!(waiting.iter_mut().all(|acquire| poll(acquire).is_pending()), "all permits are out");
        drop(held.remove(0));
        let refused = in_flight.try_acquire("ada").unwrap_err();
        assert_eq!(refused.kind(), NoPermitKind::Permits, "nobody passes those who wait");
        let mut next = waiting.remove(0);
        let Poll::Ready(Ok(permit)) = poll(&mut next) else { panic!("it was not the turn of {turn}") };
        held.push(permit);
    }
    assert_eq!(in_flight.in_use("ada"), 2);
}

#[tokio::test]
async fn a_wait_that_is_dropped_loses_no_permit() {
    let in_flight = InFlight::new("uploads", 1).unwrap();
    let held = in_flight.try_acquire("ada").unwrap();
    let [first, mut second, third] = [(), (), ()].map(|()| in_flight.acquire("ada"));
    drop(third);
    drop(held);
    assert!(poll(&mut second).is_pending(), "the permit is the first's");
    drop(first);
    let Poll::Ready(Ok(permit)) = poll(&mut second) else { panic!("the permit was not passed on") };
    drop(permit);
    assert_eq!((in_flight.in_use("ada"), in_flight.keys()), (0, 0));
}

#[tokio::test]
async fn a_waiting_task_is_woken() {
    let in_flight = InFlight::new("uploads", 1).unwrap();
    let held = in_flight.try_acquire("ada").unwrap();
    let waiting = tokio::spawn(in_flight.acquire("ada"));
    tokio::task::yield_now().await;
    drop(held);
    drop(waiting.await.unwrap().unwrap());
}

#[test]
fn queues_are_bounded_for_each_key_and_for_all() {
    let in_flight = InFlight::builder("uploads", 1).queue(2).queue_in_all(3).build().unwrap();
    let _held = ["ada", "bob"].map(|key| in_flight.try_acquire(key).unwrap());
    let mut waiting: Vec<_> = ["ada", "ada", "bob"].map(|key| in_flight.acquire(key)).into();
    for full in ["ada", "bob"] {
        let busy = in_flight.acquire(full).now().unwrap().unwrap_err();
        assert_eq!(busy.kind(), NoPermitKind::Queue);
        assert_eq!(busy.to_string(), "too many wait for one of the 1 permits of \"uploads\"");
    }
    waiting.pop();
    assert!(in_flight.acquire("bob").now().is_err(), "there is room to wait again");
}

#[test]
fn keys_do_not_share_permits() {
    let in_flight = InFlight::new("uploads", 1).unwrap();
    let _ada = in_flight.try_acquire(("ada", 1)).unwrap();
    assert!(in_flight.try_acquire(("ada", 2)).is_ok());
    let busy = in_flight.try_acquire(("ada", 1)).unwrap_err();
    assert_eq!(busy.to_string(), "all permits of \"uploads\" are out: at most 1 at once");
}

#[test]
fn those_who_wait_get_new_permits_and_of_fewer_none_is_taken_away() {
    let in_flight = InFlight::new("uploads", 1).unwrap();
    let mut held = vec![in_flight.try_acquire("ada").unwrap()];
    let mut waiting: Vec<_> = (0..3).map(|_| in_flight.acquire("ada")).collect();
    in_flight.set_permits(3).unwrap();
    for mut acquire in waiting.drain(..2) {
        let Poll::Ready(Ok(permit)) = poll(&mut acquire) else { panic!("there were two new ones") };
        held.push(permit);
    }
    in_flight.set_permits(2).unwrap();
    assert_eq!((in_flight.in_use("ada"), in_flight.remaining("ada")), (3, 0));
    held.pop();
    assert!(poll(&mut waiting[0]).is_pending(), "two are out, and two are all");
    held.pop();
    assert!(poll(&mut waiting[0]).is_ready());
}

proptest! {
    /// Whatever happens in whatever order, the permits add up, and none stays unused while somebody waits.
    #[test]
    fn permits_add_up(first in 1_u64..4, steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 1..80)) {
        let (in_flight, mut permits) = (InFlight::new("uploads", first).unwrap(), first);
        let (mut held, mut waiting): (Vec<Permit>, Vec<Acquire>) = (Vec::new(), Vec::new());
        for (step, index) in steps {
            match step {
                0 => {
                    let is_free = waiting.is_empty() && (held.len() as u64) < permits;
                    let permit = in_flight.try_acquire("ada");
                    prop_assert_eq!(permit.is_ok(), is_free);
                    held.extend(permit);
                }
                1 => waiting.push(in_flight.acquire("ada")),
                2 if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                3 if !waiting.is_empty() => drop(waiting.remove(index.index(waiting.len()))),
                4 => {
                    permits = 1 + index.index(5) as u64;
                    in_flight.set_permits(permits).unwrap();
                }
                _ => {}
            }
            let before = held.len();
            let mut first_waits = false;
            waiting.retain_mut(|acquire| match poll(acquire) {
                Poll::Ready(permit) => {
                    assert!(!first_waits, "served before one who came earlier");
                    held.push(permit.unwrap());
                    false
                }
                Poll::Pending => { first_waits = true; true }
            });
            prop_assert_eq!(in_flight.in_use("ada"), held.len() as u64);
            prop_assert!(held.len() as u64 <= permits || held.len() == before, "given although none was left");
            prop_assert!(waiting.is_empty() || held.len() as u64 >= permits);
        }
        drop((held, waiting));
        prop_assert_eq!(in_flight.keys(), 0);
    }
}
