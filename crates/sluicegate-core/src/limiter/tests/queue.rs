//! Tests of the order of turns and of turns that go back, on a store with scripted answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::sync::oneshot;

use super::scripted::{Says, Scripted};
use super::*;
use crate::Store;

/// The second at which the turn comes, and the second at which it was spent by its decision.
async fn goes(start: Instant, turn: Turn) -> (u64, u64) {
    let decision = turn.await;
    (start.elapsed().as_secs(), decision.spent_us() / 1_000_000)
}

fn start_waiting(turn: &mut Turn) {
    assert!(Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn requests_go_in_the_order_of_their_turns() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (a, b, c) = (store.turn(3, &under).await, store.turn(1, &under).await, store.turn(2, &under).await);
    let went = tokio::join!(goes(start, c), goes(start, b), goes(start, a));
    assert_eq!(
        went,
        ((2, 2), (1, 1), (3, 3)),
        "none after its own turn, as after a replacement by a faster policy"
    );
    assert_eq!(mail.queues().len(), 0, "a queue without waiters is gone");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_frees_the_last_turn() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (a, b, c) = (store.turn(1, &under).await, store.turn(2, &under).await, store.turn(3, &under).await);
    drop(a);
    assert_eq!(store.script().given_up, [3]);
    assert_eq!(tokio::join!(goes(start, b), goes(start, c)), ((1, 1), (2, 2)));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_store_does_not_take_back_passes_unused() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    store.script().says.push_back(Says::Kept);
    drop(store.turn(2, &under).await);
    assert_eq!(goes(start, store.turn(5, &under).await).await, (5, 5));
    assert_eq!((&store.script().given_up[..], mail.queues().len()), (&[2][..], 0));
}

/// 1 a second, due at 1 s, dropped at 10 s: two proceeded at one instant then.
#[tokio::test(start_paused = true)]
async fn a_turn_that_has_come_is_spent_whether_it_was_polled_or_not() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (never_polled, behind) = (store.turn(1, &under).await, store.turn(10, &under).await);
    store.advance_to(10).await;
    drop(never_polled);
    assert_eq!(store.script().given_up, [0; 0]);
    assert_eq!(goes(start, behind).await, (10, 10));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_polls_does_not_hold_up_those_behind_it() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (_never_polled, behind) = (store.turn(1, &under).await, store.turn(2, &under).await);
    assert_eq!(goes(start, behind).await, (2, 2));
}

/// At the end of a service no later request checks the store's answers: only five of twenty turns went back.
#[tokio::test(start_paused = true)]
async fn turns_go_back_in_the_order_of_the_store_although_nobody_comes_any_more() {
    let store = Scripted::new();
    let mail = store.limiter("mail");
    let (mut turns, mut answers) = (Vec::new(), Vec::new());
    for second in 11..=16 {
        turns.push(store.turn(second, &[(&mail, 1)]).await);
        let (answer, later) = oneshot::channel();
        answers.push(answer);
        store.script().says.push_back(Says::Later(later));
    }
    turns.into_iter().for_each(drop);
    assert_eq!(store.script().given_up, [16], "one at a time, so that none overtakes another");
    assert!(
        !mail.store().limiters().turns_returned(Duration::from_secs(1)).await,
        "the store has not answered"
    );
    answers.into_iter().for_each(|answer| answer.send(true).unwrap());
    assert!(mail.store().limiters().turns_returned(Duration::from_secs(1)).await);
    assert_eq!(store.script().given_up, [16, 15, 14, 13, 12, 11]);
    assert_eq!(mail.queues().len(), 0);
}

/// The turns of other instances are unknown here, so the store is not asked again and again.
#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_a_turn_is_asked_about_it_again_only_when_a_later_one_went_back() {
    let store = Scripted::new();
    let mail = store.limiter("mail");
    let small = [(&mail, 1)];
    let (first, second) = (store.turn(2, &small).await, store.turn(3, &small).await);
    let large = store.turn(4, &[(&mail, 2)]).await;
    store.script().says.extend([Says::Kept, Says::Kept]);
    drop(first);
    drop(second);
    assert_eq!(store.script().given_up, [3, 3], "before the last it asks for the latest only");
    drop(large);
    assert_eq!(store.script().given_up[2..], [4, 3, 2]);
    assert_eq!(mail.queues().len(), 0);
}

#[test]
fn turns_that_a_runtime_takes_along_pass_unused() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (one, other, store) = (runtime(), runtime(), Scripted::new());
    let mail = store.limiter("mail");
    let (_answer, later) = oneshot::channel();
    store.script().says.push_back(Says::Later(later));
    one.block_on(async { drop(store.turn(20, &[(&mail, 1)]).await) });
    drop(one);
    other.block_on(async {
        assert!(mail.store().limiters().turns_returned(Duration::from_secs(1)).await);
        drop(store.turn(50, &[(&mail, 1)]).await);
    });
    assert_eq!((&store.script().given_up[..], mail.queues().len()), (&[20, 50][..], 0));
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_answer_is_lost_is_lost_rather_than_used_twice() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    store.script().says.push_back(Says::Lost);
    drop(store.turn(2, &under).await);
    assert_eq!(goes(start, store.turn(5, &under).await).await, (5, 5));
}

/// Two alternating sizes: each turn but the last was kept because of the one behind it.
#[tokio::test(start_paused = true)]
async fn a_turn_goes_back_when_the_one_that_depended_on_it_has_gone_back() {
    let store = Scripted::new();
    let mail = store.limiter("mail");
    let (small, large) = (store.turn(2, &[(&mail, 1)]).await, store.turn(4, &[(&mail, 2)]).await);
    store.script().says.push_back(Says::Kept);
    drop(small);
    drop(large);
    assert_eq!(store.script().given_up, [2, 4, 2]);
    assert_eq!(mail.queues().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn turns_that_were_left_do_not_keep_a_limiter_open() {
    let store = Scripted::new();
    let (mail, search) = (store.limiter("mail"), store.limiter("search"));
    store.script().says.push_back(Says::Kept);
    drop(store.turn(2, &[(&mail, 1), (&search, 1)]).await);
    drop((mail, search));
    assert!(store.limiters().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_one_limit_use_each_others_turns_whatever_limits_have_counted_them() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let [ada, bob] = ["ada", "bob"].map(|name| store.limiter(name));
    store.script().counts_first = true;
    let (first, second) =
        (store.turn(1, &[(&ada, 1), (&mail, 1)]).await, store.turn(9, &[(&bob, 1), (&mail, 1)]).await);
    drop(first);
    let decision = second.await;
    assert_eq!((start.elapsed().as_secs(), decision.spent_us()), (1, 1_000_000));
    let moments = [0, 1].map(|ask| decision.receipt(ask).map(|receipt| receipt.at_us()));
    assert_eq!(moments, [Some(0), Some(1_000_000)], "counted at once, and at the turn of the first");
    assert_eq!(store.script().given_up, [9]);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each request that left once gave a new time to all behind it and woke them: 9,300 took 0.95 s of CPU under one lock.
#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_costs_the_same_however_many_wait() {
    let store = Scripted::new();
    let mail = store.limiter("mail");
    let (wakes, mut turns) = (Arc::new(Wakes::default()), Vec::new());
    for second in 1..=9_300 {
        let mut turn = store.turn(second, &[(&mail, 1)]).await;
        assert!(
            Pin::new(&mut turn).poll(&mut Context::from_waker(&Waker::from(Arc::clone(&wakes)))).is_pending()
        );
        turns.push(turn);
    }
    turns.into_iter().for_each(drop);
    let (wakes, given_up) = (wakes.0.load(Ordering::Relaxed), store.script().given_up.len());
    assert!(wakes <= 9_300, "{wakes} wakes");
    assert_eq!(given_up, 9_300);
    assert_eq!(mail.queues().len(), 0);
}

/// Only the first in line looks at the clock for all; if it is stuck, the next proceeds at its own time at the latest.
#[tokio::test(start_paused = true)]
async fn the_next_in_line_goes_on_time_when_the_first_leaves() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (mut first, second, third) =
        (store.turn(10, &under).await, store.turn(20, &under).await, store.turn(30, &under).await);
    start_waiting(&mut first);
    let leaves = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(first);
    };
    let ((), second, third) = tokio::join!(leaves, goes(start, second), goes(start, third));
    assert_eq!((second, third), ((10, 10), (20, 20)));
}

#[test]
fn waiters_of_several_runtimes_stand_in_one_queue() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (one, other, store) = (runtime(), runtime(), Scripted::new());
    let mail = store.limiter("mail");
    let first = one.block_on(store.turn(10, &[(&mail, 1)]));
    let second = other.block_on(async { (store.turn(20, &[(&mail, 1)]).await, Instant::now()) });
    // Without a runtime: a task that is dropped with its runtime.
    drop((first, one));
    let waited = other.block_on(async {
        let (second, start) = second;
        let _ = second.await;
        start.elapsed()
    });
    assert_eq!(waited.as_secs_f64().round(), 10.0);
}
