//! Stores around stores: a wrapper that does nothing is not to be noticed, whatever it is around and whatever is around it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{
    Ask, Capabilities, DecisionFuture, Event, Limiters, Mode, Notice, Parts, Place, PreparedPolicy, Subject,
    Undecided,
};
use sluicegate_core::wrap::{Within, Wrap};
use sluicegate_core::{ConfigError, Key, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::plain;

async fn conforms(wrap: impl FnOnce(&MemoryStore, &ManualClock) -> Arc<dyn Store>, seed: u64) {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().clock(clock.clone()).log_entries(1 << 16).build().unwrap();
    let suite = Conformance::new(wrap(&memory, &clock), clock);
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.rejected_requests_count().await;
    suite.modes().await;
    suite.same_decisions_as_memory(Duration::ZERO, seed, 20).await;
    suite.same_refunds_as_memory(seed, 20).await;
    suite.same_replacements_as_memory(seed, 20).await;
}

fn resilient(store: impl Into<Arc<dyn Store>>, clock: &ManualClock) -> Resilient {
    Resilient::builder(store).clock(clock.clone()).build().unwrap()
}

#[tokio::test]
async fn the_memory_store_passes_its_own_suite() {
    conforms(|memory, _| memory.into(), 4).await;
}

#[tokio::test]
async fn a_plain_wrapper_is_a_store_like_the_one_within() {
    conforms(|memory, _| plain(memory), 1).await;
}

#[tokio::test]
async fn a_plain_wrapper_around_a_resilient_store_is_a_store_like_the_one_within() {
    conforms(|memory, clock| plain(resilient(memory, clock)), 2).await;
}

#[tokio::test]
async fn a_plain_wrapper_within_a_resilient_store_changes_nothing() {
    conforms(|memory, clock| resilient(plain(memory), clock).into(), 3).await;
}

/// A wrapper that says its place, and does nothing else.
struct At(Place, Within);

impl Wrap for At {
    type Own = ();

    fn within(&self) -> &Within {
        &self.1
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn own_place(&self) -> Option<Place> {
        Some(self.0)
    }
}

#[test]
fn a_wrapper_goes_around_lower_places_only_also_through_one_of_no_place() {
    let login = || Policy::gcra("login", "5/min").build().unwrap();
    for within in Place::ALL {
        for place in Place::ALL {
            let inner: Arc<dyn Store> = Arc::new(At(within, Within::new(MemoryStore::new())));
            let inner = plain(inner);
            assert_eq!(inner.place(), Some(within));
            let checked = place.around(&*inner);
            assert_eq!(checked.is_ok(), place > within, "{place} around {within}");
            let store: Arc<dyn Store> = Arc::new(At(place, Within::new(inner)));
            let opened = RateLimiter::new(store, login());
            assert_eq!(
                opened.as_ref().err().map(ConfigError::problem),
                checked.as_ref().err().map(ConfigError::problem)
            );
            assert!(opened.err().is_none_or(|error| error.policy() == Some("login")));
        }
    }
    assert_eq!(Arc::<dyn Store>::from(MemoryStore::new()).place(), None);
}

#[test]
fn a_resilient_store_in_the_wrong_order_is_not_built_and_opens_nothing() {
    let inner = Resilient::new(MemoryStore::new());
    assert!(Resilient::builder(&inner).build().is_err());
    assert!(Policy::gcra("login", "5/min").on(Resilient::new(&inner)).is_err());
}

/// Hears, notes, and counts as three parts.
#[derive(Default)]
struct Inside {
    limiters: Limiters,
    heard: Mutex<Vec<String>>,
    listeners: sluicegate_core::store::Listeners,
}

impl Store for Inside {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        _: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        Ok(PreparedPolicy::new(policy, Arc::new(17_u64)))
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let costs = asks.iter().map(|ask| format!("{} {:?}", ask.policy().policy().name(), ask.costs()));
        self.heard.lock().unwrap().extend(costs);
        DecisionFuture::ready(Err(sluicegate_core::StoreError::new(StoreErrorKind::NothingAsked)))
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new().parts(self)
    }

    fn notify(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Event(event) => {
                self.heard.lock().unwrap().push(format!("{event:?}"));
                self.listeners.tell(event);
            }
            Notice::Listener(listener) => self.listeners.add(Arc::clone(listener)),
            Notice::Replaced { old, new, .. } => {
                assert!([old, new].iter().all(|policy| policy.prepared::<u64>() == Some(&17)));
                self.heard.lock().unwrap().push(format!("{} for {}", new.policy(), old.policy()));
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Parts for Inside {
    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        assert!(asks.iter().all(|ask| ask.policy().prepared::<u64>() == Some(&17)));
        0b111
    }
}

#[test]
fn what_a_wrapper_leaves_out_goes_through_it() {
    let inside = Arc::new(Inside::default());
    let store = plain(plain(Arc::clone(&inside) as Arc<dyn Store>));
    let policy = Policy::gcra("p", "5/min").and("9/h").build().unwrap();
    let limiter = RateLimiter::new(Arc::clone(&store), policy.clone()).unwrap();
    let opened = store.open(Arc::new(policy), None).unwrap();
    let key = Key::from("ada");
    let ask = Ask::new(&opened, key.as_ref(), 1, Mode::Charge).with_costs(&[2, 3]);
    assert_eq!(store.parts(&[ask]), 0b111);
    assert!(store.decide(&[ask]).now().unwrap().is_err());
    assert!(store.decide(&[ask, ask]).now().unwrap().is_err());
    assert_eq!(inside.heard.lock().unwrap().drain(..).collect::<Vec<_>>(), ["p [2, 3]"; 3]);

    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    store.listen(Arc::new(move |event: &Event<'_>| listener.lock().unwrap().push(format!("{event:?}"))));
    store.notice(&Event::Undecided(Subject::of("p").with_key(key.as_ref()), Undecided::QueueFull));
    assert_eq!(*heard.lock().unwrap(), *inside.heard.lock().unwrap());
    assert_eq!(heard.lock().unwrap().len(), 1);

    inside.heard.lock().unwrap().clear();
    limiter.replace(Policy::gcra("p", "6/min").build().unwrap(), Inherit::Spent).unwrap();
    limiter.replace(Policy::gcra("p", "6/min").build().unwrap(), Inherit::Spent).unwrap();
    let heard = inside.heard.lock().unwrap();
    assert_eq!(heard[0], "p: 6/min (gcra) for p: 5/min, 9/h (gcra)");
    assert!(heard[1].starts_with("PolicyReplaced"), "{heard:?}");
    assert_eq!(heard.len(), 2, "an equal policy replaces nothing");
}

#[test]
fn a_policy_of_another_store_is_refused_by_a_wrapper() {
    let (memory, other) = (MemoryStore::new(), MemoryStore::new());
    let store = plain(&memory);
    let policy = Arc::new(Policy::gcra("p", "5/min").build().unwrap());
    let foreign = Arc::<dyn Store>::from(&other).open(policy, None).unwrap();
    let key = Key::from("ada");
    let ask = Ask::new(&foreign, key.as_ref(), 1, Mode::Spend);
    let error = store.decide(&[ask]).now().unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ForeignPolicy);
    assert_eq!(store.parts(&[ask]), 1);
}
