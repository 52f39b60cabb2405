//! Several instances, and what they admitted together.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::{Algorithm, Policy, Quota};
use sluicegate_redis::RedisStore;
use sluicegate_simulator::{Admission, Law, Loss};
use sluicegate_tests::process::begin_again;
use sluicegate_tests::servers::eventually;

use crate::fleet::instance::SETUP;

/// What the instances of a test are.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) wrap: &'a str,
    pub(crate) algorithm: &'a str,
    pub(crate) quota: &'a str,
    /// Requests per second of each instance.
    pub(crate) rate: u64,
    pub(crate) keys: usize,
}

/// All stores around stores, under a load that is well above the limits.
pub(crate) const ALL: Setup<'_> =
    Setup { wrap: "resilient,leased,deny", algorithm: "gcra", quota: "60/s", rate: 300, keys: 12 };

/// Processes that share a server.
pub(crate) struct Crowd {
    members: Vec<Member>,
    said: Arc<Mutex<Vec<Said>>>,
    quota: String,
    algorithm: String,
}

struct Member {
    child: Child,
    reader: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

/// A request that an instance has decided.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) instance: usize,
    pub(crate) is_allowed: bool,
    pub(crate) key: usize,
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    pub(crate) by: String,
}

impl Crowd {
    /// Four instances that are ready.
    pub(crate) fn start(url: &str, setup: Setup<'_>) -> Self {
        let mut crowd = Self {
            members: Vec::new(),
            said: Arc::default(),
            quota: setup.quota.to_owned(),
            algorithm: setup.algorithm.to_owned(),
        };
        (0..4).for_each(|_| crowd.join(url, setup));
        for member in 0..4 {
            crowd.heard(member, "ready");
        }
        crowd
    }

    /// One more instance.
    pub(crate) fn join(&mut self, url: &str, setup: Setup<'_>) {
        let Setup { wrap, algorithm, quota, rate, keys } = setup;
        let setup =
            format!("url={url};wrap={wrap};algorithm={algorithm};quota={quota};rate={rate};keys={keys}");
        let test = "fleet::instance::an_instance_serves_until_its_input_ends";
        let mut child = begin_again(test, [(SETUP, OsStr::new(&setup))]);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, instance) = (Arc::clone(&self.said), self.members.len());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let other = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                match Said::read(instance, &line) {
                    Some(one) => said.lock().unwrap().push(one),
                    None => other.lock().unwrap().push(line),
                }
            }
        });
        self.members.push(Member { child, reader: Some(reader), lines });
    }

    /// Waits until an instance has said this.
    pub(crate) fn heard(&self, member: usize, line: &str) {
        let lines = &self.members[member].lines;
        eventually(line, || lines.lock().unwrap().iter().any(|said| said.ends_with(line)));
    }

    /// The number that an instance has said behind this word.
    pub(crate) fn number(&self, member: usize, word: &str) -> u64 {
        let lines = self.members[member].lines.lock().unwrap();
        let number = lines.iter().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
        number.unwrap_or_else(|| panic!("{word} is not in {lines:?}"))
    }

    /// Tells an instance to do something, and waits until it has.
    pub(crate) fn tell(&mut self, member: usize, command: &str) {
        let input = self.members[member].child.stdin.as_mut().unwrap();
        writeln!(input, "{command}").unwrap();
        self.heard(member, &format!("done {command}"));
    }

    /// Sends an instance a signal: `KILL`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, member: usize, signal: &str) {
        let id = self.members[member].child.id().to_string();
        assert!(Command::new("kill").arg(format!("-{signal}")).arg(id).status().unwrap().success());
    }

    /// Memory that an instance has, in KiB.
    pub(crate) fn memory(&self, member: usize) -> u64 {
        let path = format!("/proc/{}/status", self.members[member].child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// All that was decided so far.
    pub(crate) fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap().clone()
    }

    /// Whether the store has decided for every instance since a moment.
    pub(crate) fn is_served_since(&self, from_us: u64) -> bool {
        let said = self.said.lock().unwrap();
        let is_served = |instance| {
            let late = said.iter().rev().take_while(|one| one.to_us > from_us);
            late.into_iter().any(|one| one.instance == instance && one.by == "Store")
        };
        (0..self.members.len()).all(is_served)
    }

    /// Units that were admitted since a moment.
    pub(crate) fn admitted_since(&self, from_us: u64) -> usize {
        self.said.lock().unwrap().iter().filter(|one| one.is_allowed && one.from_us >= from_us).count()
    }

    /// What the store has left of each key.
    pub(crate) fn left(url: &str, setup: Setup<'_>) -> Vec<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let redis = RedisStore::connect(url).unwrap();
            redis.connected(Duration::from_secs(20)).await.unwrap();
            let (algorithm, quota): (Algorithm, Quota) =
                (setup.algorithm.parse().unwrap(), setup.quota.parse().unwrap());
            let limiter = Policy::builder("shared", algorithm, quota).on(&redis).unwrap();
            let mut left = Vec::new();
            for key in 0..setup.keys as u64 {
                left.push(limiter.peek(key).await.unwrap().remaining());
            }
            left
        })
    }

    /// Ends all instances.
    pub(crate) fn end(&mut self) {
        for Member { child, reader, .. } in &mut self.members {
            drop(child.stdin.take());
            let _ = child.kill();
            let _ = child.wait();
            if let Some(reader) = reader.take() {
                reader.join().unwrap();
            }
        }
    }

    /// What the algorithm allows.
    pub(crate) fn law(&self) -> Law {
        Law::of(self.algorithm.parse().unwrap(), &self.quota.parse().unwrap())
    }

    /// Ends all, and checks each key: what was admitted by the knowledge of the store, and what instances admitted alone.
    pub(crate) fn check(&mut self, losses: &[Loss]) {
        self.end();
        let mut shared = BTreeMap::<usize, Vec<Admission>>::new();
        let mut alone = BTreeMap::<(usize, usize), Vec<Admission>>::new();
        for Said { instance, key, from_us, to_us, by, .. } in self.said().iter().filter(|one| one.is_allowed)
        {
            let admission = Admission { from_us: *from_us, to_us: *to_us, units: 1 };
            match by.as_str() {
                "Fallback" => alone.entry((*instance, *key)).or_default().push(admission),
                _ => shared.entry(*key).or_default().push(admission),
            }
        }
        assert!(!shared.is_empty());
        for (key, admissions) in &shared {
            if let Err(excess) = self.law().check(admissions, losses) {
                panic!("key {key}: {excess:?} of {}", admissions.len());
            }
        }
        for (place, admissions) in &alone {
            if let Err(excess) = self.law().share(4).check(admissions, losses) {
                panic!("instance and key {place:?}: {excess:?} alone");
            }
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}

impl Said {
    fn read(instance: usize, line: &str) -> Option<Self> {
        let (start, rest) = line.split_once("lowed ").or_else(|| line.split_once("fused "))?;
        let mut words = rest.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let [key, from_us, to_us] = [number()?, number()?, number()?];
        let by = words.next()?.to_owned();
        Some(Self {
            instance,
            is_allowed: start.ends_with("al"),
            key: usize::try_from(key).ok()?,
            from_us,
            to_us,
            by,
        })
    }
}

/// By the clock that all processes of the machine share.
pub(crate) fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// The store forgets everything meanwhile.
pub(crate) fn losing(lose: impl FnOnce()) -> Loss {
    let from_us = now_us();
    lose();
    // Instances may spend what they held for as long as it lives, which is a window at most.
    Loss { from_us, to_us: now_us() + 2_000_000, units: Loss::ALL }
}

/// Real time passes: what is tested is done by other processes in theirs.
pub(crate) fn pass(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}
