//! Permits of a service: as many as it can bear, the important requests first, and fair parts for each key.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::key::Key;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::{Event, Listener};
use sluicegate_in_flight::adaptive::{LimitAlgorithm, Outcome};
use sluicegate_in_flight::{Acquire, AdaptiveBuilder, Class, InFlight, NoPermit, NoPermitKind, Permit};

use Class::{Critical, CriticalPlus, Sheddable, SheddablePlus};

const MS: Duration = Duration::from_millis(1);

fn poll(acquire: &mut Acquire) -> Poll<Result<Permit, NoPermit>> {
    pin!(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

/// A fixed number of permits, for all keys together.
fn fixed(permits: u64) -> (AdaptiveBuilder, ManualClock) {
    let clock = ManualClock::new();
    let builder = InFlight::adaptive("api").at_least(permits).at_most(permits).clock(clock.clone());
    (builder, clock)
}

/// The places, in `waiting`, of those that have their permits now; they keep them in `held`.
fn served(waiting: &mut [Option<Acquire>], held: &mut Vec<Permit>) -> Vec<usize> {
    let mut served = Vec::new();
    for (place, waits) in waiting.iter_mut().enumerate() {
        if let Some(acquire) = waits
            && let Poll::Ready(permit) = poll(acquire)
        {
            held.extend(permit);
            served.push(place);
            *waits = None;
        }
    }
    served
}

#[test]
fn the_most_important_request_is_served_first_and_within_a_class_the_one_that_came_first() {
    let api = fixed(1).0.build().unwrap();
    let mut held = vec![api.try_acquire("ada").unwrap()];
    let classes = [Sheddable, Critical, SheddablePlus, CriticalPlus, Critical, CriticalPlus];
    let mut waiting = classes.map(|class| Some(api.request("ada").class(class).acquire()));
    for expected in [3, 5, 1, 4, 2, 0] {
        assert!(
            api.request("ada").class(CriticalPlus).try_acquire().is_err(),
            "nobody overtakes those who wait"
        );
        held.clear();
        assert_eq!(served(&mut waiting, &mut held), [expected]);
    }
    held.clear();
    assert_eq!(api.in_use_in_all(), 0);
}

#[test]
fn in_a_full_queue_a_request_takes_the_place_of_one_that_matters_less_and_of_no_other() {
    let api = fixed(1).0.queue(2).build().unwrap();
    let _held = api.try_acquire("ada").unwrap();
    let [mut low, mut mid] =
        [Sheddable, SheddablePlus].map(|class| api.request("ada").class(class).acquire());
    let lower = api.request("ada").class(Sheddable).acquire().now().unwrap().unwrap_err();
    assert_eq!(lower.kind(), NoPermitKind::Queue, "as important as the least that waits");
    let mut high = api.request("ada").class(Critical).acquire();
    let Poll::Ready(Err(lost)) = poll(&mut low) else { panic!("its place is gone") };
    assert_eq!(lost.kind(), NoPermitKind::Queue);
    assert!(poll(&mut mid).is_pending() && poll(&mut high).is_pending());
    let status = api.status().unwrap();
    assert_eq!((status.waiting, status.shed), ([0, 1, 1, 0], [0, 0, 0, 2]));
}

#[test]
fn in_a_queue_that_stands_waits_are_short_and_the_newest_is_served_first() {
    let (builder, clock) = fixed(1);
    let api = builder.build().unwrap();
    let mut held = vec![api.try_acquire("ada").unwrap()];
    let asks = || Some(api.acquire("ada"));
    let longest = |asks: &Option<Acquire>| asks.as_ref().and_then(Acquire::longest);
    let mut waiting = vec![asks(), asks()];
    assert_eq!(longest(&waiting[1]), Some(100 * MS));
    held.clear();
    assert_eq!(served(&mut waiting, &mut held), [0], "no overload: the first that came");
    clock.advance(101 * MS);
    waiting.push(asks());
    assert_eq!(
        longest(&waiting[2]),
        Some(5 * MS),
        "the queue was not empty for longer than a request may wait"
    );
    assert_eq!(
        api.request("ada").class(Sheddable).acquire().longest(),
        Some(100 * MS),
        "that of another class was"
    );
    held.clear();
    assert_eq!(served(&mut waiting, &mut held), [2]);
    held.clear();
    assert_eq!(served(&mut waiting, &mut held), [1]);
    waiting.push(asks());
    assert_eq!(longest(&waiting[3]), Some(100 * MS), "it was empty again");
}

#[test]
fn a_class_with_a_guaranteed_part_is_served_before_others_until_it_has_it() {
    let api = fixed(10).0.guarantee(Sheddable, 20).build().unwrap();
    let mut held: Vec<_> = (0..10).map(|_| api.try_acquire("ada").unwrap()).collect();
    let classes = [CriticalPlus, Sheddable, Sheddable, Sheddable, CriticalPlus];
    let mut waiting = classes.map(|class| Some(api.request("ada").class(class).acquire()));
    let mut kept = Vec::new();
    for expected in [1, 2, 0, 4, 3] {
        held.pop();
        assert_eq!(served(&mut waiting, &mut kept), [expected]);
    }
}

#[test]
fn one_greedy_key_of_ten_has_no_more_than_its_part_while_the_others_want_theirs() {
    let api = fixed(20).0.fair().queue(50).build().unwrap();
    let greedy: Vec<_> = (0..20).map(|_| api.try_acquire(0_u64).unwrap()).collect();
    let mut waiting: Vec<_> = (0..60).map(|_| (0, api.acquire(0_u64))).collect();
    // They find a full queue, all of it the greedy key's, and take places in it.
    for key in 1..10_u64 {
        waiting.extend((0..2).map(|_| (key, api.acquire(key))));
    }
    drop(greedy);
    let mut held: Vec<(u64, Permit)> = Vec::new();
    for (key, acquire) in &mut waiting {
        if let Poll::Ready(Ok(permit)) = poll(acquire) {
            held.push((*key, permit));
        }
    }
    let of = |key: u64| held.iter().filter(|(other, _)| *other == key).count();
    assert_eq!((of(0), (1..10).map(of).collect::<Vec<_>>()), (2, vec![2; 9]));
}

#[test]
fn weights_share_in_proportion_and_what_one_does_not_want_others_have() {
    let api = fixed(12).0.fair().build().unwrap();
    let held: Vec<_> = (0..12).map(|_| api.try_acquire("first").unwrap()).collect();
    let ask = |key: &str, weight: u64, many: usize| -> Vec<_> {
        (0..many).map(|_| api.request(key).weight(weight).acquire()).collect()
    };
    let mut waiting = [ask("pro", 3, 20), ask("free", 1, 20), ask("modest", 3, 2)];
    drop(held);
    let mut kept: Vec<Permit> = Vec::new();
    let counts = waiting.each_mut().map(|waiting| {
        let ready = waiting.iter_mut().filter_map(|acquire| match poll(acquire) {
            Poll::Ready(permit) => permit.ok(),
            Poll::Pending => None,
        });
        let before = kept.len();
        kept.extend(ready);
        kept.len() - before
    });
    assert!(matches!(counts, [7 | 8, 2 | 3, 2]), "{counts:?}");
}

#[test]
fn without_fair_parts_all_keys_stand_in_one_queue_and_a_refusal_names_its_own_key() {
    let (builder, clock) = fixed(1);
    let api = builder.queue(3).build().unwrap();
    let refused = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&refused);
    api.listen(Arc::new(move |event: &Event<'_>| {
        if let Event::Shed { subject, .. } = event {
            heard.lock().unwrap().push(subject.key.map(|key| key.to_key()));
        }
    }));
    let mut held = vec![api.try_acquire("ada").unwrap()];
    let asks = [("ada", 1), ("bob", 9), ("ada", 1)];
    let waiting = asks.map(|(key, weight)| Some(api.request(key).weight(weight).acquire()));
    let mut waiting = Vec::from(waiting);
    assert!(api.acquire("carol").now().is_ok(), "it has no right to a place of ada's");
    for expected in [0, 1] {
        held.clear();
        assert_eq!(served(&mut waiting, &mut held), [expected], "the oldest, whatever its key and weight");
    }
    clock.advance(101 * MS);
    waiting.extend(["dora", "bob"].map(|key| Some(api.acquire(key))));
    assert_eq!(waiting[3].as_ref().and_then(Acquire::longest), Some(5 * MS), "one standing queue");
    waiting.push(Some(api.request("eve").class(CriticalPlus).acquire()));
    served(&mut waiting, &mut held);
    assert_eq!(*refused.lock().unwrap(), ["carol", "ada"].map(|key| Some(Key::from(key))));
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn event(&self, event: &Event<'_>) {
        if let Event::Shed { class, is_enforced, .. } = event {
            self.0.lock().expect("nobody panics").push(format!("{class} {is_enforced}"));
        }
    }
}

#[test]
fn a_shadow_refuses_nobody_and_tells_whom_it_would_have_refused() {
    let (builder, _) = fixed(1);
    let api = builder.clone().mode(PolicyMode::Shadow).build().unwrap();
    let heard = Arc::new(Heard::default());
    api.listen(heard.clone());
    let mut held: Vec<_> =
        (0..2).map(|_| api.request("ada").class(Sheddable).try_acquire().unwrap()).collect();
    held.push(api.acquire("ada").now().unwrap().unwrap());
    assert_eq!((api.in_use_in_all(), api.status().unwrap().would_shed), (3, [0, 1, 0, 1]));
    api.set_adaptive(&builder).unwrap();
    assert!(api.acquire("ada").now().is_err(), "it is enforced now, and three are out");
    api.request("ada").class(CriticalPlus).acquire().give_up();
    assert_eq!(*heard.0.lock().unwrap(), ["sheddable false", "critical false", "critical-plus true"]);
    api.set_adaptive(&builder.mode(PolicyMode::Off)).unwrap();
    held.push(api.try_acquire("ada").unwrap());
    let status = api.status().unwrap();
    assert_eq!(
        (status.shed, status.would_shed),
        ([1, 0, 0, 0], [0, 1, 0, 1]),
        "when it is off, nobody would be"
    );
}

/// A limit by answers that speak of overload alone.
fn by_faults(clock: &ManualClock) -> AdaptiveBuilder {
    InFlight::adaptive("api").algorithm(LimitAlgorithm::Aimd).first(10).clock(clock.clone())
}

/// Ten seconds after an answer, so that the next one moves the number.
fn rest(api: &InFlight, clock: &ManualClock) {
    api.try_acquire("rest").expect("there is room").answered(Outcome::Good);
    clock.advance(Duration::from_secs(10));
}

#[test]
fn answers_are_samples_and_permits_that_are_dropped_without_one_are_not() {
    let clock = ManualClock::new();
    let api = by_faults(&clock).build().unwrap();
    rest(&api, &clock);
    let hung_up = api.try_acquire("ada").unwrap();
    let (first, second) = (api.try_acquire("ada").unwrap(), api.try_acquire("ada").unwrap());
    clock.advance(200 * MS);
    drop(hung_up);
    assert_eq!(api.status().unwrap().latency, Duration::ZERO, "its client has hung up");
    first.answered(Outcome::Overload);
    assert_eq!((api.permits(), api.in_use_in_all()), (9, 2), "a fault; the body goes on");
    clock.advance(Duration::from_secs(3_600));
    first.answered(Outcome::Overload);
    drop(first);
    assert_eq!(api.permits(), 9, "a body that lasts an hour is no second sample");
    second.answered(Outcome::Overload);
    assert_eq!(api.permits(), 8);
}

#[test]
fn what_takes_longer_than_the_timeout_is_a_fault_answered_or_not() {
    let clock = ManualClock::new();
    let api = by_faults(&clock).timeout(Duration::from_secs(1)).build().unwrap();
    rest(&api, &clock);
    let late = api.try_acquire("ada").unwrap();
    clock.advance(1_001 * MS);
    late.answered(Outcome::Good);
    assert_eq!(api.permits(), 9);
    rest(&api, &clock);
    let dropped = api.try_acquire("ada").unwrap();
    clock.advance(1_001 * MS);
    drop(dropped);
    assert_eq!(api.permits(), 8);
    let soon = api.try_acquire("ada").unwrap();
    clock.advance(999 * MS);
    drop(soon);
    assert_eq!(api.permits(), 8);
}

#[test]
fn a_number_that_grows_serves_those_who_wait_at_once() {
    let clock = ManualClock::new();
    let api = by_faults(&clock).first(1).build().unwrap();
    rest(&api, &clock);
    let first = api.try_acquire("ada").unwrap();
    let mut waiting = api.acquire("ada");
    clock.advance(200 * MS);
    first.answered(Outcome::Good);
    assert!(poll(&mut waiting).is_ready());
    assert_eq!((api.permits(), api.in_use_in_all()), (2, 1), "the permit that it was given is back");
}

#[test]
fn other_settings_keep_what_was_learnt_and_wrong_ones_change_nothing() {
    let clock = ManualClock::new();
    let api = by_faults(&clock).build().unwrap();
    rest(&api, &clock);
    let held: Vec<_> = (0..10).map(|_| api.try_acquire("ada").unwrap()).collect();
    clock.advance(200 * MS);
    held[0].answered(Outcome::Good);
    assert_eq!(api.permits(), 11);
    api.set_adaptive(&by_faults(&clock).at_most(500).first(3)).unwrap();
    assert_eq!(api.permits(), 11);
    let other = InFlight::adaptive("other");
    for (wrong, says) in [
        (by_faults(&clock).at_least(0), "between 0 and 1000"),
        (by_faults(&clock).at_least(9).at_most(8), "at least 9 and at most 8"),
        (by_faults(&clock).guarantee(Critical, 60).guarantee(Sheddable, 50), "110 %"),
        (by_faults(&clock).fair(), "share by keys"),
        (other, "\"other\""),
    ] {
        let message = api.set_adaptive(&wrong).unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    }
    assert!(api.set_permits(5).unwrap_err().to_string().contains("set_adaptive"));
    let each = InFlight::new("each", 5).unwrap();
    assert!(each.set_adaptive(&InFlight::adaptive("each")).unwrap_err().to_string().contains("set_permits"));
    assert_eq!(api.permits(), 11);
}

proptest! {
    /// Whatever happens in whatever order: never more out than there are, none unused while somebody waits, nothing of a lower class
    /// before a higher one, and all come back.
    #[test]
    fn permits_of_a_service_add_up(
        permits in 1_u64..5, queue in 0_usize..6, is_fair in any::<bool>(),
        steps in prop::collection::vec((0_u8..5, 0_usize..4, 0_u64..3, any::<prop::sample::Index>()), 1..100),
    ) {
        let (builder, clock) = fixed(permits);
        let builder = builder.queue(queue);
        let api = if is_fair { builder.fair() } else { builder }.build().unwrap();
        let (mut held, mut waiting): (Vec<Permit>, Vec<(Class, Acquire)>) = (Vec::new(), Vec::new());
        for (step, class, key, index) in steps {
            let class = Class::ALL[class];
            match step {
                0 => {
                    let is_free = waiting.is_empty() && (held.len() as u64) < permits;
                    let permit = api.request(key).class(class).try_acquire();
                    prop_assert_eq!(permit.is_ok(), is_free);
                    held.extend(permit);
                }
                1 => waiting.push((class, api.request(key).class(class).weight(key + 1).acquire())),
                2 if !held.is_empty() => {
                    let permit = held.swap_remove(index.index(held.len()));
                    permit.answered(Outcome::Good);
                }
                3 if !waiting.is_empty() => drop(waiting.swap_remove(index.index(waiting.len()))),
                _ => clock.advance(30 * MS),
            }
            let (mut given, mut left) = (Vec::new(), Vec::new());
            for (class, mut acquire) in waiting {
                match poll(&mut acquire) {
                    Poll::Ready(Ok(permit)) => {
                        held.push(permit);
                        given.push(class);
                    }
                    Poll::Ready(Err(_)) => {}
                    Poll::Pending => left.push((class, acquire)),
                }
            }
            waiting = left;
            prop_assert!(given.iter().all(|given| waiting.iter().all(|(class, _)| given <= class)));
            prop_assert_eq!(api.in_use_in_all(), held.len() as u64);
            prop_assert!(held.len() as u64 <= permits);
            prop_assert!(waiting.is_empty() || held.len() as u64 == permits);
            prop_assert!(waiting.len() <= queue);
        }
        drop((held, waiting));
        prop_assert_eq!((api.in_use_in_all(), api.keys(), api.status().unwrap().waiting), (0, 0, [0; 4]));
    }
}

#[test]
fn listeners_hear_of_each_move_of_the_number_and_the_moves_are_a_chain() {
    let clock = ManualClock::new();
    let api = by_faults(&clock).timeout(400 * MS).build().unwrap();
    let moves = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&moves);
    api.listen(Arc::new(move |event: &Event<'_>| {
        if let Event::LimitMoved { subject, from, to, .. } = event {
            assert_eq!(subject.policy, Some("api"));
            heard.lock().unwrap().push((*from, *to));
        }
    }));
    // Two answers that are faults, one that is none and finds the number unused, and a request that is dropped too late.
    let answers = [Some(Outcome::Overload), Some(Outcome::Overload), Some(Outcome::Good), None];
    for outcome in answers {
        rest(&api, &clock);
        let permit = api.try_acquire("ada").unwrap();
        clock.advance(if outcome.is_some() { 300 * MS } else { 500 * MS });
        if let Some(outcome) = outcome {
            permit.answered(outcome);
        }
    }
    let moves = moves.lock().unwrap();
    assert_eq!((moves.len(), moves[0].0, moves[2].1), (3, 10, api.permits()), "{moves:?}");
    assert!(moves.windows(2).all(|two| two[0].1 == two[1].0), "{moves:?}");
}

/// Errors of a minute once lowered the number to 1, and a slow service then needed minutes to come back.
#[test]
fn after_an_outage_that_says_nothing_of_load_all_are_served_at_once() {
    let clock = ManualClock::new();
    let api = InFlight::adaptive("api").wait_up_to(Duration::ZERO).clock(clock.clone()).build().unwrap();
    let serve = |latency: Duration, outcome: Outcome| {
        let held: Vec<_> =
            (0..15).map(|_| api.try_acquire("ada")).collect::<Result<_, _>>().expect("all are served");
        clock.advance(latency);
        held.iter().for_each(|permit| permit.answered(outcome));
    };
    (0..20).for_each(|_| serve(1_000 * MS, Outcome::Good));
    (0..6_000).for_each(|_| serve(10 * MS, Outcome::Error));
    (0..20).for_each(|_| serve(1_000 * MS, Outcome::Good));
}

#[test]
fn a_burst_finds_room_while_nothing_speaks_of_overload_and_requests_that_wait_are_demand() {
    let clock = ManualClock::new();
    let api =
        InFlight::adaptive("api").first(4).wait_up_to(10_000 * MS).clock(clock.clone()).build().unwrap();
    let held: Vec<_> = (0..8).map(|_| api.try_acquire("ada").unwrap()).collect();
    let mut waiting: Vec<_> = (0..8).map(|_| Some(api.acquire("ada"))).collect();
    clock.advance(300 * MS);
    held[0].answered(Outcome::Good);
    drop(held);
    let mut served_now = Vec::new();
    assert_eq!(served(&mut waiting, &mut served_now).len(), 8);
}
