//! Permits that four processes share: never more out than there are, whatever befalls one of the processes or the server.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sluicegate::in_flight::{InFlight, Permit};
use sluicegate_core::OnOutage;
use sluicegate_redis::RedisStore;
use sluicegate_tests::process::{begin_again, is_alone};
use sluicegate_tests::servers::skewed::Skewed;
use sluicegate_tests::servers::{Server, eventually, run};
use tokio::time::sleep;

use crate::fleet::crowd::{now_us, pass};

/// The variable that tells a process where the server is.
const URL: &str = "SLUICEGATE_PERMITS";

const PERMITS: usize = 6;
const LEASE: Duration = Duration::from_secs(2);

/// The processes that the other tests start; by itself it has nothing to do.
#[test]
fn an_instance_works_under_shared_permits_until_it_is_killed() {
    if !is_alone() {
        return;
    }
    let url = std::env::var(URL).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = RedisStore::builder().deadline(Duration::from_millis(500)).connect(&url).unwrap();
        let jobs = InFlight::builder("jobs", PERMITS as u64).lease(LEASE).on_outage(OnOutage::Deny);
        let jobs = jobs.on(&store).unwrap();
        // All processes together want four times as many as there are.
        let workers = (0..PERMITS as u64).map(|worker| work(&jobs, worker));
        futures_util::future::join_all(workers).await;
    });
}

/// Says of each piece of work when it begins and ends, all within the time in which it has its permit.
async fn work(jobs: &InFlight, worker: u64) {
    loop {
        let Ok(permit) = jobs.acquire("all").await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let begun = now_us();
        if permit.is_lost() {
            continue;
        }
        println!("begin {worker} {begun}");
        let word =
            if goes_on(&permit, Duration::from_millis(30 + worker * 10)).await { "end" } else { "lost" };
        println!("{word} {worker} {}", now_us());
    }
}

/// Works for some time; `false` if the permit was lost.
async fn goes_on(permit: &Permit, time: Duration) -> bool {
    tokio::select! { biased; () = permit.lost() => false, () = sleep(time) => !permit.is_lost() }
}

/// A piece of work: when it began, when it ended, and whether its permit was lost.
#[derive(Clone, Copy, Debug)]
struct Piece {
    instance: usize,
    worker: u64,
    from_us: u64,
    to_us: Option<u64>,
    is_lost: bool,
}

/// Four processes that share permits.
pub(crate) struct Fleet {
    children: Vec<Child>,
    readers: Vec<JoinHandle<()>>,
    pieces: Arc<Mutex<Vec<Piece>>>,
    /// Instances that were stopped, and when: what they did then has ended there.
    stopped: Vec<(usize, u64)>,
}

impl Fleet {
    pub(crate) fn start(url: &str) -> Self {
        let (children, readers, stopped) = (Vec::new(), Vec::new(), Vec::new());
        let mut fleet = Self { children, readers, pieces: Arc::default(), stopped };
        (0..4).for_each(|instance| fleet.join(url, instance));
        eventually("each instance works", || (0..4).all(|instance| fleet.has_begun_since(instance, 0)));
        fleet
    }

    fn join(&mut self, url: &str, instance: usize) {
        let test = "fleet::permits::an_instance_works_under_shared_permits_until_it_is_killed";
        let mut child = begin_again(test, [(URL, OsStr::new(url))]);
        let output = BufReader::new(child.stdout.take().unwrap());
        let pieces = Arc::clone(&self.pieces);
        self.readers.push(std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                note(&mut pieces.lock().unwrap(), instance, &line);
            }
        }));
        self.children.push(child);
    }

    fn signal(&self, instance: usize, signal: &str) {
        let id = self.children[instance].id().to_string();
        assert!(Command::new("kill").arg(format!("-{signal}")).arg(id).status().unwrap().success());
    }

    /// Kills an instance, and returns when it is gone.
    fn kill(&mut self, instance: usize) -> u64 {
        self.children[instance].kill().unwrap();
        self.children[instance].wait().unwrap();
        self.stopped.push((instance, now_us()));
        now_us()
    }

    /// Stops an instance in the middle of its work, and returns when.
    fn stop(&mut self, instance: usize) -> u64 {
        eventually("it works as it is stopped", || {
            self.signal(instance, "STOP");
            self.stopped.push((instance, now_us()));
            // What it has said before is heard.
            std::thread::sleep(Duration::from_millis(100));
            let works = self
                .pieces
                .lock()
                .unwrap()
                .iter()
                .any(|piece| piece.instance == instance && piece.to_us.is_none());
            if !works {
                self.stopped.pop();
                self.signal(instance, "CONT");
            }
            works
        });
        now_us()
    }

    pub(crate) fn has_begun_since(&self, instance: usize, since_us: u64) -> bool {
        let pieces = self.pieces.lock().unwrap();
        pieces.iter().any(|piece| piece.instance == instance && piece.from_us > since_us)
    }

    /// Waits until all permits are at work at one time after this one.
    fn uses_all_since(&self, since_us: u64) {
        eventually("all permits are out", || self.most(since_us, u64::MAX) >= PERMITS);
    }

    /// Checks that never more were out than there are, with as many again after each of these moments in which the server has forgotten all.
    pub(crate) fn check(&self, forgotten: &[(u64, u64)]) {
        let mut from_us = 0;
        let mut moments = forgotten.iter().peekable();
        while let Some(&(begin_us, end_us)) = moments.next() {
            let (mut renewed_us, mut times) = (renewed_by(end_us), 1);
            while let Some((_, end_us)) = moments.next_if(|(begin_us, _)| *begin_us < renewed_us) {
                (renewed_us, times) = (renewed_by(*end_us), times + 1);
            }
            assert!(self.most(from_us, begin_us) <= PERMITS);
            assert!(self.most(begin_us, renewed_us) <= (times + 1) * PERMITS);
            from_us = renewed_us;
        }
        assert!(self.most(from_us, u64::MAX) <= PERMITS);
    }

    fn lost(&self, instance: usize) -> usize {
        let pieces = self.pieces.lock().unwrap();
        pieces.iter().filter(|piece| piece.instance == instance && piece.is_lost).count()
    }

    /// The most pieces of work that were under way at one time within these.
    fn most(&self, from_us: u64, to_us: u64) -> usize {
        let mut steps = Vec::new();
        for piece in self.pieces.lock().unwrap().iter() {
            let stops = self
                .stopped
                .iter()
                .filter(|(instance, at_us)| *instance == piece.instance && piece.from_us <= *at_us);
            let ends = stops.map(|(_, at_us)| *at_us).chain(piece.to_us).min().unwrap_or(u64::MAX);
            let (from, to) = (piece.from_us.max(from_us), ends.min(to_us));
            if from < to {
                steps.extend([(from, 1), (to, -1)]);
            }
        }
        steps.sort_unstable();
        let running = steps.iter().scan(0_i32, |sum, (_, step)| {
            *sum += step;
            Some(*sum)
        });
        usize::try_from(running.max().unwrap_or(0)).unwrap()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
    }
}

/// When permits that are out are claimed again, after the server has forgotten them: a third of the lease, and two seconds for machines that
/// are busy.
fn renewed_by(forgotten_us: u64) -> u64 {
    forgotten_us + u64::try_from(LEASE.as_micros()).unwrap() / 3 + 2_000_000
}

/// Notes what an instance says: the first may stand behind what the test binary says of itself.
fn note(pieces: &mut Vec<Piece>, instance: usize, line: &str) {
    let Some((word, rest)) =
        ["begin ", "end ", "lost "].into_iter().find_map(|word| Some((word, line.split_once(word)?.1)))
    else {
        return;
    };
    let (worker, at) = rest.split_once(' ').unwrap();
    let (worker, at_us) = (worker.parse().unwrap(), at.parse().unwrap());
    if word == "begin " {
        pieces.push(Piece { instance, worker, from_us: at_us, to_us: None, is_lost: false });
        return;
    }
    let own = |piece: &&mut Piece| piece.instance == instance && piece.worker == worker;
    let piece = pieces.iter_mut().rev().find(own).expect("it has begun");
    piece.to_us = Some(at_us);
    piece.is_lost = word == "lost ";
}

#[test]
fn the_permits_of_an_instance_that_is_killed_are_back_within_its_lease_and_never_too_many_are_out() {
    let server = Server::start();
    let mut fleet = Fleet::start(&server.url());
    fleet.uses_all_since(0);
    let killed_us = fleet.kill(1);
    // What the server knows of the instances: the lease of the dead one ends within its length.
    let mut admin = server.admin();
    let keys: Vec<String> = run(&mut admin, "KEYS rl:3:jobs:*");
    let fields: Vec<String> = run(&mut admin, &format!("HVALS {}", keys[0]));
    let until = |field: &String| field.split(' ').nth(3).unwrap().parse::<u64>().unwrap();
    let first = fields.iter().map(until).min().unwrap();
    assert!(first <= killed_us + u64::try_from(LEASE.as_micros()).unwrap(), "{fields:?} {killed_us}");
    fleet.uses_all_since(first);
    for instance in [0, 2, 3] {
        eventually("the others work on", || fleet.has_begun_since(instance, first));
    }
    assert_eq!(fleet.most(0, u64::MAX), PERMITS);
    assert_eq!([0, 2, 3].map(|instance| fleet.lost(instance)), [0; 3]);
}

#[test]
fn an_instance_that_stands_still_for_longer_than_its_lease_is_told_that_it_has_lost_its_permits() {
    let server = Server::start();
    let mut fleet = Fleet::start(&server.url());
    fleet.uses_all_since(0);
    let stopped_us = fleet.stop(2);
    pass(LEASE.as_secs() + 1);
    fleet.uses_all_since(stopped_us);
    let woken_us = now_us();
    fleet.signal(2, "CONT");
    eventually("it is told", || fleet.lost(2) > 0);
    eventually("it works again", || fleet.has_begun_since(2, woken_us));
    fleet.uses_all_since(woken_us);
    assert_eq!(fleet.most(0, u64::MAX), PERMITS);
}

/// Nobody can renew then: all are told before the server gives their permits to others.
#[test]
fn while_the_server_hangs_for_longer_than_the_lease_all_permits_are_lost_and_none_is_out_twice() {
    let server = Server::start();
    let fleet = Fleet::start(&server.url());
    for _ in 0..2 {
        server.signal("STOP");
        pass(LEASE.as_secs() + 1);
        let healed_us = now_us();
        server.signal("CONT");
        for instance in 0..4 {
            eventually("each works again", || fleet.has_begun_since(instance, healed_us));
        }
        fleet.uses_all_since(healed_us);
    }
    assert_eq!(fleet.most(0, u64::MAX), PERMITS);
}

/// Permits that are out are claimed again with the next renewal, and those that were given out twice meanwhile are lost.
#[test]
fn f20_a_server_that_is_flushed_gives_each_permit_out_once_more_until_the_next_renewal() {
    let server = Server::start();
    let fleet = Fleet::start(&server.url());
    let mut forgotten = Vec::new();
    for _ in 0..3 {
        fleet.uses_all_since(now_us());
        let before_us = now_us();
        server.run::<()>("FLUSHALL");
        let flushed_us = now_us();
        pass(2 * LEASE.as_secs());
        fleet.uses_all_since(renewed_by(flushed_us));
        forgotten.push((before_us, flushed_us));
        fleet.check(&forgotten);
    }
}

#[test]
fn f34_a_clock_that_steps_back_keeps_the_number_and_one_that_steps_ahead_ends_leases_early() {
    const HOUR_US: i64 = 3_600_000_000;
    let skewed = Skewed::start();
    let mut fleet = Fleet::start(&skewed.server.url());
    fleet.uses_all_since(0);
    skewed.shift(-HOUR_US);
    pass(1);
    // By the old clock its lease would be over in an hour.
    let killed_us = fleet.kill(3);
    fleet.uses_all_since(killed_us);
    assert_eq!(fleet.most(0, u64::MAX), PERMITS);
    let before_us = now_us();
    skewed.shift(HOUR_US);
    pass(2 * LEASE.as_secs());
    let renewed_us = renewed_by(before_us);
    assert!(fleet.most(before_us, renewed_us) <= 2 * PERMITS);
    assert!(fleet.most(renewed_us, u64::MAX) <= PERMITS);
    fleet.uses_all_since(renewed_us);
}
