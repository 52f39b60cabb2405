//! Suspension against a model that keeps all of it in lists.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, MemoryStore, Outcome, Policy};

use crate::support::{ALL, answer, store_for};

/// What is said of a suspension, in seconds.
#[derive(Clone, Copy, Debug)]
struct Terms {
    after: u64,
    within: u64,
    lasts: u64,
    up_to: u64,
    remembers: u64,
}

impl Terms {
    fn any() -> impl Strategy<Value = Self> {
        let spans = (1..6_u64, 1..200_u64, 1..100_u64, 1..20_u64, 0..500_u64);
        spans.prop_map(|(after, within, lasts, times, more)| {
            let up_to = lasts * times;
            Self { after, within, lasts, up_to, remembers: lasts + more }
        })
    }
}

impl Terms {
    /// As many as there can be unless some are ended by hand.
    fn most(self) -> usize {
        let doublings = (0..).find(|times| self.lasts << times >= self.up_to).unwrap_or(0);
        let longest = self.remembers / self.up_to;
        usize::try_from(if doublings == 0 { 1 } else { doublings + longest + 1 }).expect("it is small")
    }
}

/// What is known of a key.
#[derive(Default)]
struct Model {
    strikes: Vec<u64>,
    began: Vec<u64>,
    until: u64,
}

impl Model {
    /// Counts a refusal, and says until when the key is suspended if it is one too many.
    fn strike(&mut self, terms: Terms, now: u64) -> Option<u64> {
        self.strikes.retain(|at| at + terms.within * 1_000_000 > now);
        self.strikes.push(now);
        if self.strikes.len() as u64 != terms.after {
            return None;
        }
        let before = self.began.iter().filter(|at| **at + terms.remembers * 1_000_000 > now).count();
        let lasts = (0..before).fold(terms.lasts, |lasts, _| (lasts * 2).min(terms.up_to));
        self.strikes.clear();
        if before < terms.most() {
            self.began.push(now);
        }
        self.until = now + lasts * 1_000_000;
        Some(self.until)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Check {
        key: u64,
        cost: u64,
    },
    Peek {
        key: u64,
    },
    Suspend {
        key: u64,
        lasts: u64,
    },
    Release {
        key: u64,
    },
    Reset {
        key: u64,
    },
    Replace {
        limit: u64,
    },
    /// In milliseconds.
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..2_u64;
    let step = prop_oneof![
        12 => (key.clone(), 1..5_u64).prop_map(|(key, cost)| Step::Check { key, cost }),
        2 => key.clone().prop_map(|key| Step::Peek { key }),
        1 => (key.clone(), 0..90_u64).prop_map(|(key, lasts)| Step::Suspend { key, lasts }),
        1 => key.clone().prop_map(|key| Step::Release { key }),
        1 => key.prop_map(|key| Step::Reset { key }),
        1 => (1..6_u64).prop_map(|limit| Step::Replace { limit }),
        5 => (0..40_000_u64).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..120)
}

#[test]
fn keys_are_suspended_exactly_as_a_model_says_that_keeps_all_refusals() {
    let strategy = (0..ALL.len(), Terms::any(), steps());
    let mut runner = TestRunner::new(Config::with_cases(100));
    runner
        .run(&strategy, |(algorithm, terms, steps)| follow(ALL[algorithm], terms, &steps))
        .expect("the model is right");
}

/// The policy without its suspension says what is refused: of requests whose key is suspended it never hears.
fn follow(algorithm: Algorithm, terms: Terms, steps: &[Step]) -> Result<(), TestCaseError> {
    let (store, clock) = store_for(64, 65_536);
    let plain = MemoryStore::builder().table_size(64).clock(clock.clone()).build().expect("it can be built");
    let plainly = |limit: u64| Policy::builder("p", algorithm, format!("{limit}/10s"));
    let span = |seconds| Duration::from_secs(seconds);
    let suspending = |limit| {
        plainly(limit)
            .suspend(terms.after, span(terms.within), span(terms.lasts))
            .up_to(span(terms.up_to))
            .remember(span(terms.remembers))
    };
    let limiter = suspending(3).on(&store).expect("it fits");
    let oracle = plainly(3).on(&plain).expect("it fits");
    let mut models: HashMap<u64, Model> = HashMap::new();
    for step in steps {
        let now = clock.now_us();
        match *step {
            Step::Advance(millis) => clock.advance(Duration::from_millis(millis)),
            Step::Replace { limit } => {
                let policy = suspending(limit).build().expect("it can be built");
                limiter.replace(policy, Inherit::Reset).expect("it fits");
                let policy = plainly(limit).build().expect("it can be built");
                oracle.replace(policy, Inherit::Reset).expect("it fits");
            }
            Step::Reset { key } => {
                drop(answer(limiter.reset(key)));
                drop(answer(oracle.reset(key)));
            }
            Step::Suspend { key, lasts } => {
                models.entry(key).or_default().until = now + lasts * 1_000_000;
                let decision = answer(limiter.suspensions().suspend(key, span(lasts)));
                prop_assert_eq!(decision.outcome() == Outcome::Suspended, lasts > 0);
            }
            Step::Release { key } => {
                models.insert(key, Model::default());
                prop_assert!(answer(limiter.suspensions().release(key)).outcome() != Outcome::Suspended);
            }
            Step::Peek { key } | Step::Check { key, .. } => {
                let model = models.entry(key).or_default();
                let (decision, expected) = match step {
                    Step::Check { cost, .. } => (answer(limiter.check(key).cost(*cost)), *cost),
                    _ => (answer(limiter.peek(key)), 0),
                };
                let mut until = (model.until > now).then_some(model.until);
                if until.is_none() {
                    let plain = if expected > 0 {
                        answer(oracle.check(key).cost(expected))
                    } else {
                        answer(oracle.peek(key))
                    };
                    if expected > 0 && !plain.is_allowed() {
                        until = model.strike(terms, now);
                    }
                    if until.is_none() {
                        let shown = |decision: &sluicegate_core::Decision| {
                            format!("{:?} {:?}", decision.outcome(), decision.quotas())
                        };
                        prop_assert_eq!(shown(&decision), shown(&plain));
                        continue;
                    }
                }
                let wait = until.map(|until| Duration::from_micros(until - now));
                prop_assert_eq!((decision.outcome(), decision.retry_after()), (Outcome::Suspended, wait));
            }
        }
    }
    Ok(())
}
