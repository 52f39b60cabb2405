//! Workers in processes of their own, and what kills them: nothing that was accepted is lost, and only what was in hand is repeated.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sluicegate::Key;
use sluicegate_tests::process::{begin_again, is_alone};
use sluicegate_tests::servers::persistent::Persistent;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::deferred_example::job::Job;
use crate::deferred_example::queue::{Acceptance, Queue, Settings, Standing};
use crate::deferred_example::turns;
use crate::deferred_example::worker::{Outcome, work};
use crate::support::{now, order, queue, store};

/// The variable that tells a process of workers where the server is.
const SERVER: &str = "SLUICEGATE_DEFERRED";

/// Jobs a second, over all processes.
const RATE: usize = 20;
const WORKERS: usize = 4;
const TAKES: Duration = Duration::from_millis(100);

fn settings() -> Settings {
    Settings { lease: Duration::from_secs(2), ..Settings::default() }
}

/// The processes that the other tests start; by itself it has nothing to do.
#[test]
fn workers_carry_out_until_they_are_killed() {
    if !is_alone() {
        return;
    }
    let url = std::env::var(SERVER).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = store(&url).await;
        let seal = crate::deferred_example::seal::Seal::with_secret(crate::support::SECRET).unwrap();
        let queue = Arc::new(Queue::new(&store, "orders", seal, settings()).unwrap());
        let turns = turns(&store, &format!("{RATE}/s")).unwrap();
        let (_stop, stopped) = watch::channel(false);
        let carry_out = |job: Job| async move {
            println!("begin {} {}", job.id, now().as_micros());
            sleep(TAKES).await;
            Outcome::Ok(job.request.into_body().to_vec())
        };
        let workers = (0..WORKERS).map(|_| work(&queue, &turns, stopped.clone(), carry_out));
        futures_util::future::join_all(workers).await;
    });
}

/// What a process has begun: which job, and when.
type Begun = Arc<Mutex<Vec<(String, Duration)>>>;

/// One process of workers.
struct Workers {
    child: Child,
    begun: Begun,
    reader: JoinHandle<()>,
}

impl Workers {
    fn start(url: &str) -> Self {
        let mut child =
            begin_again("killed::workers_carry_out_until_they_are_killed", [(SERVER, OsStr::new(url))]);
        let output = BufReader::new(child.stdout.take().unwrap());
        let begun = Begun::default();
        let heard = Arc::clone(&begun);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The first may stand behind what the test binary says of itself.
                let Some((_, said)) = line.split_once("begin ") else { continue };
                let (id, us) = said.split_once(' ').unwrap();
                heard.lock().unwrap().push((id.to_owned(), Duration::from_micros(us.parse().unwrap())));
            }
        });
        Self { child, begun, reader }
    }

    /// Kills it, and says what it has begun.
    fn kill(mut self) -> Vec<(String, Duration)> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap();
        std::mem::take(&mut self.begun.lock().unwrap())
    }
}

/// An accepted job each 20 ms, with an idempotency key: what is not answered is sent again.
async fn accept_all(queue: Arc<Queue>, jobs: usize) -> BTreeMap<String, (usize, Duration)> {
    let mut accepted = BTreeMap::new();
    for number in 0..jobs {
        let (owner, once) = (Key::from("ada"), number.to_string());
        let id = loop {
            match queue.accept(&owner, Some(&once), &order(&once)).await {
                Ok(Acceptance::Accepted(id) | Acceptance::Repeated(id)) => break id,
                Ok(other) => panic!("{other:?}"),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
        accepted.insert(id, (number, now()));
        sleep(Duration::from_millis(20)).await;
    }
    accepted
}

/// Kills two processes of workers and the server, while jobs come and are carried out.
async fn survives(fsync: &str, may_lose: Duration) {
    let mut redis = Persistent::start(fsync);
    let url = redis.server.url();
    let queue = queue(&redis.server, settings()).await;
    let accepting = tokio::spawn(accept_all(Arc::clone(&queue), 120));
    let mut alive: Vec<_> = (0..3).map(|_| Workers::start(&url)).collect();
    let (mut begun, mut kills) = (Vec::new(), Vec::new());
    sleep(Duration::from_millis(1_500)).await;
    kills.push(now());
    begun.extend(alive.remove(0).kill());
    sleep(Duration::from_millis(500)).await;
    kills.push(now());
    redis.server.restart();
    sleep(Duration::from_millis(1_500)).await;
    alive.push(Workers::start(&url));
    kills.push(now());
    begun.extend(alive.remove(0).kill());

    let accepted = accepting.await.unwrap();
    let (ada, mut lost) = (Key::from("ada"), Vec::new());
    for (id, (number, at)) in &accepted {
        let done = async {
            loop {
                match queue.ask(&ada, id).await {
                    Ok(Some(Standing::Done(result))) => return Some(result),
                    Ok(None) => return None,
                    _ => sleep(Duration::from_millis(20)).await,
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(60), done).await.expect("it is carried out") {
            Some(result) => assert_eq!(result, number.to_string().as_bytes()),
            None => lost.push(*at),
        }
    }
    let is_allowed = |at: &Duration| *at <= kills[1] && kills[1] - *at < may_lose;
    assert!(lost.iter().all(is_allowed), "{lost:?} {kills:?}");

    for workers in alive {
        begun.extend(workers.kill());
    }
    begun.sort_by_key(|(_, at)| *at);
    let mut each = BTreeMap::<&str, Vec<Duration>>::new();
    for (id, at) in &begun {
        each.entry(id).or_default().push(*at);
    }
    assert_eq!(each.len() + lost.len(), accepted.len());
    // In hand at a kill is what was begun no longer ago than a job takes, with time for an answer on a busy machine.
    let in_hand = |at: &Duration| kills.iter().any(|kill| *at <= *kill && *kill - *at < 4 * TAKES);
    let repeats: Vec<_> = each.values().filter(|times| times.len() > 1).collect();
    assert!(repeats.iter().all(|times| times.len() == 2 && in_hand(&times[0])), "{repeats:?} {kills:?}");
    assert!(repeats.len() <= 2 * WORKERS + 3 * WORKERS, "{repeats:?}");
    // A worker that is woken late gives its turn up. Between its look at the time and that of the job the system may still run another
    // process for a while.
    let late = Duration::from_millis(20);
    let seconds = begun.windows(RATE + 1).map(|jobs| jobs[RATE].1 - jobs[0].1);
    let shortest = seconds.min().unwrap();
    println!(
        "{fsync}: {} lost, {} repeated, {} jobs in {shortest:?} at least",
        lost.len(),
        repeats.len(),
        RATE + 1
    );
    assert!(shortest + late >= Duration::from_secs(1), "{} jobs in {shortest:?}", RATE + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_workers_and_of_a_redis_that_syncs_always_lose_nothing_and_repeat_what_was_in_hand() {
    survives("always", Duration::ZERO).await;
}

/// A killed process has handed its log to the system, unless that was busy with a sync: two seconds at most.
#[tokio::test(flavor = "multi_thread")]
async fn kills_of_workers_and_of_a_redis_that_syncs_each_second_lose_the_last_seconds_at_most() {
    survives("everysec", Duration::from_secs(2)).await;
}
