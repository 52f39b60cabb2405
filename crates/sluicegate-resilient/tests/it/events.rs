//! What comes out of a resilient store: breakers, the fallback, debts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::store::{Event, Listener};
use sluicegate_core::{OnOutage, RateLimiter};
use sluicegate_tests::around::plain;
use sluicegate_tests::outages::{FAILS, Scene, WORKS, admitted, now};

/// Keeps what it hears, and asks the limiter each time: so no lock is held.
#[derive(Default)]
struct Hears {
    events: Mutex<Vec<String>>,
    limiter: Mutex<Option<RateLimiter>>,
}

impl Listener for Hears {
    fn event(&self, event: &Event<'_>) {
        let said = match event {
            Event::BreakerOpened { part, error, .. } => format!("part {part} opened: {error}"),
            Event::BreakerClosed { part } => format!("part {part} closed"),
            Event::FallbackEnded { lasted } => format!("ended after {lasted:?}"),
            other => format!("{other:?}"),
        };
        self.events.lock().expect("nobody panics").push(said);
        let limiter = self.limiter.lock().expect("nobody panics").clone();
        if let Some(limiter) = limiter {
            let _ = now(limiter.peek(9_u64));
        }
    }
}

#[tokio::test]
async fn a_listener_hears_of_an_outage_from_its_beginning_to_its_end() {
    let scene = Scene::new(|builder| builder);
    let hears = Arc::new(Hears::default());
    let limiter = scene.limiter(OnOutage::Local);
    *hears.limiter.lock().expect("nobody panics") = Some(limiter.clone());
    let heard = || std::mem::take(&mut *hears.events.lock().expect("nobody panics"));
    // Handed inward by what is around the store.
    plain(&scene.store).listen(Arc::clone(&hears) as Arc<dyn Listener>);
    assert_eq!(admitted(&limiter, "ada", 7), 7);
    assert!(heard().is_empty(), "decisions are not events");
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "bob", 10), 10);
    assert_eq!(heard(), ["part 0 opened: the store cannot be reached", "FallbackBegan"]);
    scene.advance(2);
    assert_eq!(admitted(&limiter, "bob", 1), 1);
    assert!(heard().is_empty(), "a trial has failed, which is no opening");
    assert_eq!(scene.store.status().opened, 1);
    scene.mood(WORKS);
    scene.advance(2);
    assert_eq!(admitted(&limiter, "eve", 3), 3);
    let lasted = Duration::from_secs(4);
    assert_eq!(heard(), ["part 0 closed".to_owned(), format!("ended after {lasted:?}")]);
    tokio::task::yield_now().await;
    assert_eq!(heard(), ["Settled { charged: 1, left: 0 }"]);
}
