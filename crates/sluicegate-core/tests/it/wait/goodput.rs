//! Clients that leave while they wait for a limit that all share, beside one of their own: the shared limit is used in full, and never above.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::limiter::{Turn, check_all};
use sluicegate_core::{Algorithm, Key, MemoryStore, Policy, Quota, RateLimiter, Store};
use sluicegate_tests::around::instance;
use sluicegate_tests::random::Random;
use sluicegate_tests::time::Paused;
use tokio::time::Instant;

use crate::algorithm::exact::promised;
use crate::support::secs;

const LONGEST: Duration = secs(20);

/// One of several services that share a store.
struct Service {
    own: RateLimiter,
    shared: RateLimiter,
}

impl Service {
    fn all(shared: Policy, own: &str, count: usize) -> Vec<Self> {
        let store = MemoryStore::builder().table_size(4_096).clock(Paused::now()).build().unwrap();
        let store: Arc<dyn Store> = store.into();
        let each = (0..count).map(|_| {
            let store = instance(&store);
            let own =
                RateLimiter::new(Arc::clone(&store), Policy::gcra("own", own).build().unwrap()).unwrap();
            Self { own, shared: RateLimiter::new(store, shared.clone()).unwrap() }
        });
        each.collect()
    }

    /// A turn of this client.
    async fn turn(&self, client: u64) -> Option<Turn> {
        let (all, client) = (Key::from("all"), Key::from(client));
        let checks = [self.own.check(&client), self.shared.check(&all)].map(|check| check.reserve(LONGEST));
        let decision = check_all(checks).await.unwrap();
        let limits = [(self.own.clone(), client.clone(), 1), (self.shared.clone(), all, 1)];
        decision.is_allowed().then(|| Turn::new(decision, limits))
    }
}

/// A crowd of clients.
struct Crowd {
    /// The time between two of them.
    between: Duration,
    /// How many clients there are that come by turns.
    clients: u64,
    /// Of a hundred, how many leave, and when.
    leave: u64,
    patience: Duration,
}

impl Crowd {
    /// The moments at which requests went, by the store's clock, in eighty seconds.
    async fn comes_to(&self, services: &[Service]) -> Vec<u64> {
        let (gone, mut random) = (Arc::<Mutex<Vec<u64>>>::default(), Random::new(5));
        let start = Instant::now();
        for number in 0.. {
            if start.elapsed() > secs(80) {
                break;
            }
            let service = &services[random.index(services.len())];
            let patience = if random.below(100) < self.leave { self.patience } else { secs(3_600) };
            if let Some(turn) = service.turn(number % self.clients).await {
                let gone = Arc::clone(&gone);
                tokio::spawn(async move {
                    if let Ok(decision) = tokio::time::timeout(patience, turn).await {
                        gone.lock().unwrap().push(decision.spent_us());
                    }
                });
            }
            tokio::time::sleep(self.between).await;
        }
        let mut gone = std::mem::take(&mut *gone.lock().unwrap());
        gone.sort_unstable();
        gone
    }
}

/// How many went in each of the later seconds, of a limit of ten a second that is never exceeded.
fn each_second(algorithm: Algorithm, quota: Quota, gone: &[u64]) -> f64 {
    let mut model = promised(algorithm, quota);
    for at in gone {
        assert!(model.passes(*at, 1), "{algorithm}: {at} is over");
        model.spend(*at, 1);
    }
    let begin = gone[0] + 20_000_000;
    gone.iter().filter(|at| (begin..begin + 50_000_000).contains(*at)).count() as f64 / 50.0
}

/// Turns that were left were good for the same client only: of ten a second, none was served after fifteen seconds.
#[tokio::test(start_paused = true)]
async fn a_shared_limit_is_used_in_full_whatever_part_of_the_clients_leaves() {
    for algorithm in Algorithm::ALL {
        // A turn that another instance depends on passes unused.
        for (instances, leave, least) in [(1, 30, 9.5), (1, 100, 9.5), (4, 100, 7.0)] {
            let quota = Quota::per_second(10);
            let shared = Policy::builder("shared", algorithm, quota).build().unwrap();
            let services = Service::all(shared, "5/s", instances);
            let crowd =
                Crowd { between: Duration::from_millis(67), clients: 1_000, leave, patience: secs(5) };
            let served = each_second(algorithm, quota, &crowd.comes_to(&services).await);
            assert!(served >= least, "{algorithm}, {instances} instances, {leave} % leave: {served}/s");
        }
    }
}
