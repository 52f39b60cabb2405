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
async fn requests_go_in_order_of_arrival_each_with_the_decision_of_its_slot() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (a, b, c) = (store.turn(3, &under).await, store.turn(1, &under).await, store.turn(2, &under).await);
    let went = tokio::join!(goes(start, c), goes(start, b), goes(start, a));
    assert_eq!(went, ((3, 3), (2, 2), (1, 1)));
    assert_eq!(mail.queues().len(), 0, "a queue without waiters is gone");
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_frees_the_last_slot() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (a, b, c) = (store.turn(1, &under).await, store.turn(2, &under).await, store.turn(3, &under).await);
    drop(a);
    assert_eq!(store.script().given_up, [3]);
    assert_eq!(tokio::join!(goes(start, b), goes(start, c)), ((1, 1), (2, 2)));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_the_store_does_not_take_back_is_the_next_requests() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let left = store.turn(2, &under).await;
    store.script().says.push_back(Says::Kept);
    drop(left);
    let comer = store.turn(5, &under).await;
    assert_eq!(store.script().given_up, [2, 5], "the comer's own turn is not needed");
    assert_eq!(goes(start, comer).await, (2, 2));
    assert_eq!(mail.queues().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_left_is_taken_whole_by_a_smaller_request_and_never_by_a_larger_one() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let left = store.turn(2, &[(&mail, 3)]).await;
    store.script().says.push_back(Says::Kept);
    drop(left);
    let (larger, smaller) = (store.turn(4, &[(&mail, 4)]).await, store.turn(5, &[(&mail, 2)]).await);
    assert_eq!(tokio::join!(goes(start, larger), goes(start, smaller)), ((4, 4), (2, 2)));
}

#[tokio::test(start_paused = true)]
async fn slots_are_not_for_other_keys_or_other_limits() {
    let (store, start) = (Scripted::new(), Instant::now());
    let (mail, search) = (store.limiter("mail"), store.limiter("search"));
    store.script().says.extend([Says::Kept, Says::Kept]);
    drop(store.turn(2, &[(&mail, 1)]).await);
    drop(store.turn(2, &[(&mail, 1), (&search, 1)]).await);
    assert_eq!(goes(start, store.turn(4, &[(&search, 1)]).await).await, (4, 4));
}

/// A request that left a turn inside a full queue once made room for no other.
#[tokio::test(start_paused = true)]
async fn a_refused_request_takes_a_slot_that_was_left_and_comes_early_enough() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    store.script().says.extend([Says::Kept, Says::Kept]);
    drop((store.turn(2, &[(&mail, 1)]).await, store.turn(9, &[(&mail, 1)]).await));
    store.script().refuses = true;
    let first = mail.check("ada").acquire(Duration::from_secs(5)).await.unwrap();
    assert_eq!((first.is_allowed(), start.elapsed().as_secs()), (true, 2));
    let second = mail.check("ada").acquire(Duration::from_secs(5)).await.unwrap();
    assert_eq!((second.is_allowed(), start.elapsed().as_secs()), (false, 2), "the other one comes too late");
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

#[tokio::test(start_paused = true)]
async fn the_store_may_answer_later_and_until_then_the_slot_is_nobodys() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    let (answer, later) = oneshot::channel();
    store.script().says.push_back(Says::Later(later));
    drop(store.turn(2, &under).await);
    let before = store.turn(5, &under).await;
    answer.send(false).unwrap();
    store.script().says.push_back(Says::Kept);
    let after = store.turn(6, &under).await;
    assert_eq!(
        store.script().given_up,
        [2, 5, 6],
        "the one that waits moves up, and then the one that comes"
    );
    assert_eq!(tokio::join!(goes(start, before), goes(start, after)), ((2, 2), (5, 5)));
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
    assert_eq!(store.script().given_up, [16, 15, 14, 13, 12, 11]);
    assert!(
        !mail.store().limiters().turns_returned(Duration::from_secs(1)).await,
        "the store has not answered"
    );
    // The return of the fifth reached the store before that of the last, so it was refused, as were the returns before it.
    for (answer, is_taken) in answers.into_iter().zip([true, false, false, false, false, false]) {
        answer.send(is_taken).unwrap();
    }
    assert!(mail.store().limiters().turns_returned(Duration::from_secs(1)).await);
    assert_eq!(store.script().given_up[6..], [15, 14, 13, 12, 11]);
    assert_eq!(mail.queues().len(), 0);
}

/// The turns of other instances are unknown here, so the store is not asked again and again.
#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_a_turn_is_asked_about_it_again_only_when_a_later_one_went_back() {
    let store = Scripted::new();
    let mail = store.limiter("mail");
    let (first, second) = (store.turn(2, &[(&mail, 1)]).await, store.turn(3, &[(&mail, 1)]).await);
    let (answers, later): (Vec<_>, Vec<_>) = (0..2).map(|_| oneshot::channel()).unzip();
    store.script().says.extend(later.into_iter().map(Says::Later));
    drop((first, second));
    answers.into_iter().for_each(|answer| answer.send(false).unwrap());
    assert!(mail.store().limiters().turns_returned(Duration::from_secs(1)).await);
    assert_eq!(store.script().given_up, [3, 2]);
    // The turns belong to the next requests.
    let start = Instant::now();
    assert_eq!(goes(start, store.turn(9, &[(&mail, 1)]).await).await.1, 2);
}

/// When the runtime of requests that left has ended, the next request looks for their answers.
#[test]
fn a_runtime_that_ends_takes_no_turn_along() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (one, other, store) = (runtime(), runtime(), Scripted::new());
    let mail = store.limiter("mail");
    let (answer, later) = oneshot::channel();
    store.script().says.push_back(Says::Later(later));
    one.block_on(async { drop(store.turn(20, &[(&mail, 1)]).await) });
    drop(one);
    answer.send(false).unwrap();
    other.block_on(async {
        drop(store.turn(50, &[(&mail, 1)]).await);
        assert!(mail.store().limiters().turns_returned(Duration::from_secs(1)).await);
        assert_eq!(store.script().given_up, [20, 50, 20], "the last one went back, and then the one before");
    });
}

#[tokio::test(start_paused = true)]
async fn a_slot_whose_answer_is_lost_is_lost_rather_than_used_twice() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let under = [(&mail, 1)];
    store.script().says.push_back(Says::Lost);
    drop(store.turn(2, &under).await);
    assert_eq!(goes(start, store.turn(5, &under).await).await, (5, 5));
}

/// Two alternating sizes: each slot but the last was kept because of the one behind it.
#[tokio::test(start_paused = true)]
async fn a_slot_goes_back_when_the_one_that_depended_on_it_has_gone_back() {
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
async fn a_slot_that_nobody_takes_is_forgotten_when_its_time_has_passed() {
    let store = Scripted::new();
    let mail = store.limiter("mail");
    store.script().says.push_back(Says::Kept);
    drop(store.turn(2, &[(&mail, 1)]).await);
    assert_eq!(mail.queues().len(), 1);
    store.advance_to(3).await;
    let search = store.limiter("search");
    let other = store.turn(5, &[(&mail, 1), (&search, 1)]).await;
    assert_eq!(mail.queues().len(), 1, "only the one that waits now");
    drop(other);
    assert_eq!(mail.queues().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn slots_that_were_left_do_not_keep_a_limiter_open() {
    let store = Scripted::new();
    let (mail, search) = (store.limiter("mail"), store.limiter("search"));
    store.script().says.push_back(Says::Kept);
    drop(store.turn(2, &[(&mail, 1), (&search, 1)]).await);
    drop((mail, search));
    assert!(store.limiters().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_store_hears_of_a_turn_that_came_where_a_limit_has_held_units_for_it() {
    let store = Scripted::new();
    let (address, user) = (store.limiter("address"), store.limiter("user"));
    let under = [(&address, 1), (&user, 1)];
    store.script().holds = true;
    let (first, second) = (store.turn(1, &under).await, store.turn(2, &under).await);
    drop(store.turn(3, &under).await);
    tokio::join!(first, second);
    let script = store.script();
    // The turn of the leaving request goes back, with the units that were held for it.
    assert_eq!((&script.departed[..], &script.given_up[..]), (&[1, 2][..], &[3, 3][..]));
}

#[tokio::test(start_paused = true)]
async fn requests_that_share_one_limit_use_each_others_turns_whatever_limits_they_have_beside_it() {
    let (store, start) = (Scripted::new(), Instant::now());
    let mail = store.limiter("mail");
    let [ada, bob] = ["ada", "bob"].map(|name| store.limiter(name));
    store.script().holds = true;
    let (first, second) =
        (store.turn(1, &[(&ada, 1), (&mail, 1)]).await, store.turn(9, &[(&bob, 1), (&mail, 1)]).await);
    drop(first);
    assert_eq!(goes(start, second).await, (1, 1));
    // The turn of the second went back, with the units held for the first; the units held for the second are spent.
    let script = store.script();
    assert_eq!((&script.given_up[..], &script.departed[..]), (&[9, 1][..], &[9][..]));
}

/// When the queue was next checked, the limit that had held the request back admitted it, and it took a turn that was too early.
#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_own_turn_until_its_other_limits_let_it_go_however_late_that_is_looked_at() {
    let (store, start) = (Scripted::new(), Instant::now());
    let (user, mail) = (store.limiter("user"), store.limiter("mail"));
    let under = [(&user, 1), (&mail, 1)];
    store.script().holds = true;
    let first = store.turn(1, &under).await;
    store.script().free = 5;
    let bound = store.turn(10, &under).await;
    store.script().free = 0;
    let last = store.turn(30, &under).await;
    drop(first);
    store.advance_to(100).await;
    assert_eq!(tokio::join!(goes(start, bound), goes(start, last)), ((100, 10), (100, 1)));
}

/// As soon as its limits admit it, it moves up like the others.
#[tokio::test(start_paused = true)]
async fn a_request_moves_up_once_its_other_limits_let_it_go() {
    let (store, start) = (Scripted::new(), Instant::now());
    let (user, mail) = (store.limiter("user"), store.limiter("mail"));
    let under = [(&user, 1), (&mail, 1)];
    store.script().holds = true;
    let first = store.turn(8, &under).await;
    store.script().free = 5;
    let bound = store.turn(10, &under).await;
    store.advance_to(6).await;
    drop(first);
    assert_eq!(goes(start, bound).await, (8, 8));
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
        second.await;
        start.elapsed()
    });
    assert_eq!(waited.as_secs_f64().round(), 10.0);
}
