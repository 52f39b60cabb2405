//! Workers in processes of their own, and what kills them: nothing that was accepted is lost, and only what was in hand is repeated.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use http::StatusCode;
use sluicegate::overflow::deferred::{Job, JobOutcome, QueueSettings};
use sluicegate_tests::process::{begin_again, is_alone};
use sluicegate_tests::servers::persistent::Persistent;
use tokio::time::sleep;
use tower::{Layer, service_fn};

use crate::overflow::deferred::{ask, deferral, echo, limit, order, send};
use crate::overflow::support::store;

/// The variable that tells a process of workers where the server is.
const SERVER: &str = "SLUICEGATE_DEFERRED";

const RATE: &str = "50/s burst 1";
const JOBS: usize = 80;
const WORKERS: usize = 4;
const TAKES: Duration = Duration::from_millis(100);

fn settings() -> QueueSettings {
    QueueSettings::default().lease(Duration::from_secs(2)).at_once(WORKERS)
}

/// The processes that the other test starts; by itself it has nothing to do.
#[test]
fn workers_carry_out_until_they_are_killed() {
    if !is_alone() {
        return;
    }
    let url = std::env::var(SERVER).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = store(&url).await;
        let _open = limit(RATE, &store);
        let carry_out = |job: Job| async move {
            println!("begin {}", job.id);
            sleep(TAKES).await;
            JobOutcome::Ok(job.request.into_body().to_vec())
        };
        deferral(&url, settings()).work(&store, std::future::pending(), carry_out).await;
    });
}

/// One process of workers, and the ids of the jobs that it has begun.
struct Workers {
    child: Child,
    begun: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Workers {
    fn start(url: &str) -> Self {
        let test = "overflow::killed::workers_carry_out_until_they_are_killed";
        let mut child = begin_again(test, [(SERVER, OsStr::new(url))]);
        let output = BufReader::new(child.stdout.take().unwrap());
        let begun = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&begun);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The first may stand behind what the test binary says of itself.
                if let Some((_, id)) = line.split_once("begin ") {
                    heard.lock().unwrap().push(id.to_owned());
                }
            }
        });
        Self { child, begun, reader: Some(reader) }
    }

    /// Kills it, and returns what it has begun.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut self.begun.lock().unwrap())
    }
}

/// A test that fails leaves no process behind.
impl Drop for Workers {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_workers_and_of_a_redis_that_syncs_always_lose_nothing_and_repeat_what_was_in_hand() {
    let mut redis = Persistent::start("always");
    let url = redis.server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, settings());
    let shop = deferral.layer(limit(RATE, &store)).layer(service_fn(echo));
    let mut accepted = BTreeMap::new();
    while accepted.len() < JOBS {
        let number = accepted.len().to_string();
        let (status, id) = send(&shop, order(&[("idempotency-key", &number)], &number)).await;
        if status == StatusCode::ACCEPTED {
            accepted.insert(id, number);
        }
    }
    let mut alive: Vec<_> = (0..3).map(|_| Workers::start(&url)).collect();
    let mut begun = Vec::new();
    // Each is killed amid jobs, and the server amid those of the rest.
    while alive.iter().any(|workers| workers.begun.lock().unwrap().len() < 4) {
        sleep(Duration::from_millis(10)).await;
    }
    begun.extend(alive.remove(0).kill());
    redis.server.restart();
    begun.extend(alive.remove(0).kill());
    alive.push(Workers::start(&url));

    for (id, number) in &accepted {
        let done = async {
            loop {
                let standing = ask(&deferral, id).await;
                assert_ne!(standing["status"], 404, "{id} is lost");
                if standing["state"] == "done" {
                    return standing;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let standing = tokio::time::timeout(Duration::from_secs(60), done).await.expect("it is carried out");
        assert_eq!(standing["result"], **number);
    }
    for workers in alive {
        begun.extend(workers.kill());
    }
    let mut each = BTreeMap::<&str, usize>::new();
    for id in &begun {
        *each.entry(id).or_default() += 1;
    }
    assert_eq!(each.len(), accepted.len());
    let repeats = begun.len() - each.len();
    println!("{repeats} of {JOBS} were repeated");
    // In hand at a kill were at most as many as each process takes, for two processes and, at the kill of the server, for three.
    assert!(repeats <= 5 * WORKERS, "{repeats}");
}
