//! The permits of a service under four times the load that it can bear: the important requests first, and fair parts for each tenant.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_in_flight::adaptive::Outcome;
use sluicegate_in_flight::{Acquire, AdaptiveBuilder, Class, InFlight, Permit};
use sluicegate_tests::random::Random;

/// As many requests are worked on at once.
const WORKERS: u64 = 40;
const WORK_US: f64 = 20_000.0;
const SECONDS: u64 = 5;

/// Requests of one kind, which come at random.
struct Source {
    key: u64,
    class: Class,
    /// As a part of what the service can do.
    load: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    came: u64,
    served: u64,
}

impl Counts {
    fn goodput(self) -> f64 {
        self.served as f64 / self.came as f64
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes(usize),
    Ends(u64),
    /// It has waited for as long as it may.
    Expires(u64),
}

struct Play<'a> {
    sources: &'a [Source],
    limit: InFlight,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    said: u64,
    waiting: BTreeMap<u64, (usize, Acquire)>,
    held: BTreeMap<u64, Permit>,
    counts: Vec<Counts>,
}

/// What came of each source.
fn play(builder: AdaptiveBuilder, sources: &[Source]) -> Vec<Counts> {
    let clock = ManualClock::new();
    let builder = builder.at_least(WORKERS).at_most(WORKERS).clock(clock.clone());
    let mut play = Play {
        sources,
        limit: builder.build().expect("it is possible"),
        random: Random::new(1),
        events: BinaryHeap::new(),
        said: 0,
        waiting: BTreeMap::new(),
        held: BTreeMap::new(),
        counts: vec![Counts::default(); sources.len()],
    };
    (0..sources.len()).for_each(|source| play.say(0, Event::Comes(source)));
    while let Some(Reverse((now_us, _, event))) = play.events.pop()
        && now_us < SECONDS * 1_000_000
    {
        clock.set(Duration::from_micros(now_us));
        play.meet(now_us, event);
    }
    play.counts
}

impl Play<'_> {
    fn say(&mut self, at_us: u64, event: Event) {
        self.said += 1;
        self.events.push(Reverse((at_us, self.said, event)));
    }

    fn meet(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Comes(source) => self.comes(now_us, source),
            Event::Ends(request) => {
                let permit = self.held.remove(&request).expect("it is worked on");
                permit.answered(Outcome::Good);
                drop(permit);
                self.serve(now_us);
            }
            Event::Expires(request) => {
                if let Some((_, acquire)) = self.waiting.remove(&request) {
                    acquire.give_up();
                }
            }
        }
    }

    fn comes(&mut self, now_us: u64, source: usize) {
        let Source { key, class, load } = self.sources[source];
        let next_us = exponential(&mut self.random, WORK_US / WORKERS as f64 / load);
        self.say(now_us + next_us, Event::Comes(source));
        self.counts[source].came += 1;
        match self.limit.request(key).class(class).acquire().now() {
            Ok(Ok(permit)) => self.begin(now_us, source, permit),
            Ok(Err(_)) => {}
            Err(acquire) => {
                let longest = acquire.longest().expect("the limit has a bound");
                let request = self.said + 1;
                self.waiting.insert(request, (source, acquire));
                self.say(
                    now_us + u64::try_from(longest.as_micros()).expect("it is short"),
                    Event::Expires(request),
                );
            }
        }
    }

    fn begin(&mut self, now_us: u64, source: usize, permit: Permit) {
        self.counts[source].served += 1;
        assert!(self.held.len() < usize::try_from(WORKERS).expect("it is small"), "one too many");
        let ends_us = now_us + exponential(&mut self.random, WORK_US);
        let request = self.said + 1;
        self.held.insert(request, permit);
        self.say(ends_us, Event::Ends(request));
    }

    /// Those whose turn has come begin; none of them matters less than one that goes on waiting.
    fn serve(&mut self, now_us: u64) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut ended = Vec::new();
        for (request, (source, acquire)) in &mut self.waiting {
            if let Poll::Ready(permit) = Pin::new(acquire).poll(&mut cx) {
                ended.push((*request, *source, permit));
            }
        }
        for (request, source, permit) in ended {
            self.waiting.remove(&request);
            let Ok(permit) = permit else { continue };
            let class = |source: usize| self.sources[source].class;
            assert!(self.waiting.values().all(|(other, _)| class(source) <= class(*other)));
            self.begin(now_us, source, permit);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "times of a play are far below the bound")]
fn exponential(random: &mut Random, mean_us: f64) -> u64 {
    (-(1.0 - random.fraction()).ln() * mean_us).round() as u64
}

#[test]
fn at_a_fourfold_load_the_most_important_requests_lose_nothing_while_they_alone_would_fit() {
    let [plus, critical, sheddable] =
        [(Class::CriticalPlus, 0.8), (Class::Critical, 1.2), (Class::Sheddable, 2.0)]
            .map(|(class, load)| Source { key: 0, class, load });
    let counts = play(InFlight::adaptive("api"), &[plus, critical, sheddable]);
    let [plus, critical, sheddable] = [counts[0], counts[1], counts[2]].map(Counts::goodput);
    assert!(plus >= 0.99 && sheddable < 0.02 && critical > 0.1, "{plus}, {critical}, {sheddable}");
    let all: u64 = counts.iter().map(|counts| counts.served).sum();
    let possible = SECONDS as f64 * 1e6 / WORK_US * WORKERS as f64;
    assert!(all as f64 > 0.95 * possible, "the service is busy: {all} of {possible}");
}

/// Ten tenants, of which the first asks for four times what there is, and each other one for this part of it.
fn tenants(load: f64) -> Vec<Counts> {
    let source = |key: u64| Source { key, class: Class::Critical, load: if key == 0 { 4.0 } else { load } };
    play(InFlight::adaptive("api").fair(), &(0..10).map(source).collect::<Vec<_>>())
}

#[test]
fn a_greedy_tenant_of_ten_has_at_most_its_part_and_two_percent_while_all_want_theirs() {
    let counts = tenants(0.4);
    let all: u64 = counts.iter().map(|counts| counts.served).sum();
    let part = counts[0].served as f64 / all as f64;
    assert!(part <= 0.12, "{part}");
}

#[test]
fn tenants_that_want_no_more_than_their_part_lose_nothing_to_a_greedy_one() {
    let counts = tenants(0.08);
    for tenant in &counts[1..] {
        assert!(tenant.goodput() >= 0.99, "{tenant:?}");
    }
    assert!(counts[0].served > counts[1].served, "it has what is left");
}
