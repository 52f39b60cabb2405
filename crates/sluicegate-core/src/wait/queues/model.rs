use std::task::Wake;
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::super::under::{AskCosts, Identity, TurnReceipts};
use super::*;
use crate::Key;
use crate::store::{DecisionFuture, QuotaStatus, judge};

/// A queue of requests of one key, and the store that has reserved their turns: it takes back only the last one.
struct ReservingStore {
    queues: Queues,
    start: Instant,
    line: LineKeys,
    costs: AskCosts,
    /// The turns that are out, by their second.
    out: Mutex<Vec<u64>>,
}

impl ReservingStore {
    fn new() -> Arc<Self> {
        let line = LineKeys::from([(Identity::of(&std::sync::Arc::new(())), Key::from("ada"))]);
        let (queues, start, costs) = (Queues::default(), Instant::now(), AskCosts::from_slice(&[1]));
        Arc::new(Self { queues, start, line, costs, out: Mutex::default() })
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    /// Reserves a turn at that second, and waits for it.
    fn enter(&self, second: u64) -> TurnPlace {
        self.out.lock().unwrap().push(second);
        let status = QuotaStatus::at_rest((0, 0), 1).spending(1);
        self.queues.enter(self, self.at(second), Box::new(judge(0, second * 1_000_000, [status])), None)
    }

    fn leave(&self, place: &TurnPlace) {
        self.queues.leave(self, place);
    }

    /// Every reserved turn has one waiting request, or is kept for the next one: no turn is lost, and none is used twice.
    fn is_balanced(&self, waiting: usize) {
        assert_eq!(self.out.lock().unwrap().len(), waiting + self.queues.lock().left.len());
    }
}

impl LimitersOfTurn for ReservingStore {
    fn line(&self) -> &LineKeys {
        &self.line
    }

    fn costs(&self) -> &AskCosts {
        &self.costs
    }

    fn give_up(&self, turns: &TurnReceipts) -> DecisionFuture {
        let mut out = self.out.lock().unwrap();
        let is_last = out.pop_if(|second| turns[0].1.at_us() == *second * 1_000_000).is_some();
        let status = QuotaStatus::at_rest((0, 0), 1);
        DecisionFuture::ready(Ok(judge(0, 0, [if is_last { status } else { status.refused_for_us(1) }])))
    }

    fn attend(&self, _: u64) -> bool {
        unreachable!("the store answers at once")
    }
}

#[test]
fn of_two_that_leave_at_once_each_turn_goes_back_or_is_kept() {
    loom::model(|| {
        let desk = ReservingStore::new();
        let (first, second) = (desk.enter(60), desk.enter(61));
        let other = Arc::clone(&desk);
        let thread = thread::spawn(move || other.leave(&first));
        desk.leave(&second);
        thread.join().unwrap();
        desk.is_balanced(0);
    });
}

#[test]
fn whoever_comes_while_another_leaves_takes_a_turn_that_nobody_else_has() {
    loom::model(|| {
        let desk = ReservingStore::new();
        let (first, _second) = (desk.enter(60), desk.enter(61));
        // A turn of another request, which prevents the store from taking back the turns before it.
        desk.out.lock().unwrap().push(62);
        let other = Arc::clone(&desk);
        let thread = thread::spawn(move || other.leave(&first));
        let came = desk.queues.enter_left(&*desk, desk.at(90)).is_some();
        thread.join().unwrap();
        desk.out.lock().unwrap().pop();
        desk.is_balanced(1 + usize::from(came));
    });
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(std::sync::Mutex<usize>);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

#[test]
fn the_next_one_hears_that_it_moved_up_whenever_it_is_polled() {
    loom::model(|| {
        let desk = ReservingStore::new();
        let (first, second) = (desk.enter(60), desk.enter(61));
        let other = Arc::clone(&desk);
        let thread = thread::spawn(move || other.leave(&first));
        let woken = std::sync::Arc::new(Woken::default());
        let until = desk.queues.poll(&*desk, &second, &Waker::from(std::sync::Arc::clone(&woken)));
        thread.join().unwrap();
        let knows = until.is_err_and(|until| until == desk.at(60));
        assert!(knows != (*woken.0.lock().unwrap() == 1), "it knows, or is woken once");
    });
}
