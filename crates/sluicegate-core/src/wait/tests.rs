//! Tests of a line without a store, and loom models of it: run these with `RUSTFLAGS="--cfg loom"`.

use super::*;

fn line() -> LineKey {
    let limits = SmallVec::from_elem((1, Key::from("ada")), 1);
    LineKey { limits, by: DecidedBy::Store }
}

fn enter(queues: &Queues, line: &LineKey, at: Instant, spent_ms: u64) -> TurnPlace {
    let turn = ReservedTurn { spent_us: spent_ms * 1_000, receipts: SmallVec::new() };
    queues.enter(line.clone(), SmallVec::from_elem(1, 1), at, turn)
}

/// Gives back turns, if nobody else does, to a store that takes them; returns their moments in milliseconds.
fn give_back(queues: &Queues, place: &TurnPlace) -> Vec<u64> {
    let returns = std::iter::successors(queues.start_returns(place), |_| queues.next_return(place, None));
    returns.map(|(_, (_, turn))| turn.spent_us / 1_000).collect()
}

#[cfg(not(loom))]
#[test]
fn answers_that_come_late_do_not_change_the_order_of_the_turns() {
    let (start, queues, key, mut places) = (Instant::now(), Queues::default(), line(), Vec::new());
    let after = |ms| start + Duration::from_millis(ms);
    // A turn each millisecond; the answers are late by 5, 9 and 2 of them, and the clock was set before the last.
    for (late, spent_ms) in [(5, 90_010), (9, 90_011), (2, 90_012), (0, 200_000)] {
        places.push(enter(&queues, &key, after(spent_ms.min(95_000) + late), spent_ms));
    }
    let moments: Vec<_> = places.iter().map(TurnPlace::at_latest).collect();
    assert_eq!(moments, [90_015, 90_016, 90_017, 95_000].map(after));
    assert!(places.iter().all(|place| queues.leave(place)));
    assert_eq!(give_back(&queues, &places[0]), [200_000, 90_012, 90_011, 90_010]);
    assert_eq!(queues.len(), 0);
}

#[cfg(loom)]
mod models {
    use std::task::Wake;

    use loom::sync::Arc as LoomArc;
    use loom::thread;

    use super::*;

    /// Two requests with turns at 60 s and 61 s.
    fn two(start: Instant) -> (LoomArc<Queues>, TurnPlace, TurnPlace) {
        let (queues, key) = (LoomArc::new(Queues::default()), line());
        let [first, second] =
            [60, 61].map(|second| enter(&queues, &key, start + Duration::from_secs(second), second * 1_000));
        (queues, first, second)
    }

    fn leave(queues: &Queues, place: &TurnPlace) -> Vec<u64> {
        assert!(queues.leave(place));
        give_back(queues, place)
    }

    #[test]
    fn of_two_that_leave_at_once_each_turn_goes_back_once() {
        loom::model(|| {
            let (queues, first, second) = two(Instant::now());
            let other = LoomArc::clone(&queues);
            let thread = thread::spawn(move || leave(&other, &first));
            let mut given_back = leave(&queues, &second);
            given_back.extend(thread.join().unwrap());
            given_back.sort_unstable();
            assert_eq!((given_back, queues.are_returning()), (vec![60_000, 61_000], false));
        });
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(std::sync::Mutex<usize>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn the_next_one_hears_that_it_moved_up_whenever_it_is_polled() {
        loom::model(|| {
            let start = Instant::now();
            let (queues, first, second) = two(start);
            let other = LoomArc::clone(&queues);
            let thread = thread::spawn(move || leave(&other, &first));
            let woken = Arc::new(Woken::default());
            let until = queues.poll(&second, &Waker::from(Arc::clone(&woken)));
            assert_eq!(thread.join().unwrap(), [61_000]);
            let knows = until.is_err_and(|until| until == start + Duration::from_secs(60));
            assert!(knows != (*woken.0.lock().unwrap() == 1), "it knows, or is woken once");
        });
    }
}
