//! The four processes, and what they did in a run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use sluicegate::Quota;
use sluicegate_tests::servers::{self, Server};

use crate::instance::{SETUP, Tally};

const PROCESSES: usize = 4;

/// Processes that share a server.
pub(crate) struct Crowd<'a> {
    server: &'a Server,
    members: Vec<Member>,
    runs: u64,
}

/// Which keys are asked for, and how fast.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// As popular as Zipf says, as fast as they can.
    Popular,
    /// Each as often as any other; so many requests a second of all together, or as fast as they can.
    Even(Option<u64>),
}

struct Member {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The decisions of all of them in a run.
pub(crate) struct Seen {
    pub(crate) quota: Quota,
    /// While it was measured.
    seconds: f64,
    /// Before that, and until the last answer.
    warm_seconds: f64,
    all_seconds: f64,
    keys: Vec<Tally>,
    pub(crate) calls: u64,
    pub(crate) redis_us: f64,
}

impl<'a> Crowd<'a> {
    /// Four processes that are connected.
    pub(crate) fn start(server: &'a Server, wrap: &str, keys: usize) -> Self {
        let start = |index| {
            let this = std::env::current_exe().expect("a bench knows where it is");
            let setup = format!("{};{wrap};{keys};{index}", server.url());
            let mut child = Command::new(this)
                .env(SETUP, setup)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the bench can be started again");
            let input = child.stdin.take().expect("it is piped");
            let output = BufReader::new(child.stdout.take().expect("it is piped"));
            Member { child, input, output }
        };
        let mut crowd = Self { server, members: (0..PROCESSES).map(start).collect(), runs: 0 };
        crowd.members.iter_mut().for_each(|member| assert_eq!(member.line(), "ready"));
        crowd
    }

    /// Lets all of them decide: a while that does not count, and then one that does.
    pub(crate) fn run(&mut self, quota: Quota, load: Load, [warm, measured]: [Duration; 2]) -> Seen {
        let began = Instant::now();
        self.runs += 1;
        let (keys, rate) = match load {
            Load::Popular => ("popular", 0),
            Load::Even(rate) => ("even", rate.unwrap_or(0) / PROCESSES as u64),
        };
        for member in &mut self.members {
            let (warm, measured) = (warm.as_millis(), measured.as_millis());
            writeln!(member.input, "{} {warm} {measured} {keys} {rate} {quota}", self.runs)
                .expect("it reads its input");
        }
        std::thread::sleep(warm);
        let mut admin = self.server.admin();
        let before = (servers::script_calls(&mut admin), servers::cpu_us(&mut admin));
        std::thread::sleep(measured);
        let after = (servers::script_calls(&mut admin), servers::cpu_us(&mut admin));
        let mut keys: Vec<Tally> = Vec::new();
        let (mut seconds, mut warm_seconds) = (0.0, 0.0);
        for member in &mut self.members {
            let said = member.line();
            let mut times = said.split(' ').map(|time| time.parse::<f64>().expect("it says how long"));
            warm_seconds += times.next().expect("it says how long") / PROCESSES as f64;
            seconds += times.next().expect("it says how long") / PROCESSES as f64;
            for key in 0.. {
                let line = member.line();
                if line == "end" {
                    break;
                }
                let tally = Tally::read(&line);
                match keys.get_mut(key) {
                    Some(sum) => sum.add(&tally),
                    None => keys.push(tally),
                }
            }
        }
        let all_seconds = began.elapsed().as_secs_f64();
        let (calls, redis_us) = (after.0 - before.0, after.1 - before.1);
        Seen { quota, seconds, warm_seconds, all_seconds, keys, calls, redis_us }
    }
}

impl Member {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes lines");
        line.truncate(line.trim_end().len());
        line
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        for Member { child, .. } in &mut self.members {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Seen {
    pub(crate) fn decisions(&self) -> u64 {
        self.keys.iter().map(Tally::decisions).sum()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.decisions() as f64 / self.seconds
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.keys.iter().map(|key| key.admitted).sum()
    }

    pub(crate) fn unanswered(&self) -> u64 {
        self.keys.iter().map(|key| key.unanswered).sum()
    }

    /// In percent of all decisions.
    pub(crate) fn part(&self, of: impl Fn(&Tally) -> u64) -> f64 {
        self.keys.iter().map(of).sum::<u64>() as f64 * 100.0 / self.decisions() as f64
    }

    /// The units that one exact store would have admitted of this demand: all of it, or as much as the bucket had and got.
    pub(crate) fn ideal(&self) -> f64 {
        let end = self.warm_seconds + self.seconds;
        let until = |asked: u64, seconds: f64| (asked as f64).min(self.lawful(seconds));
        let of = |key: &Tally| until(key.warm + key.decisions(), end) - until(key.warm, self.warm_seconds);
        self.keys.iter().map(of).sum()
    }

    /// Units that were admitted above what the quota allows in all of the run.
    pub(crate) fn excess(&self) -> u64 {
        let most = whole(self.lawful(self.all_seconds)) + 1;
        self.keys.iter().map(|key| (key.warm_admitted + key.admitted).saturating_sub(most)).sum()
    }

    fn lawful(&self, seconds: f64) -> f64 {
        let per_second = self.quota.limit() as f64 / self.quota.period().as_secs_f64();
        self.quota.burst_size() as f64 + per_second * seconds
    }
}

/// The whole units of it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what a machine decides in seconds is far below the end of the numbers"
)]
pub(crate) fn whole(units: f64) -> u64 {
    units as u64
}
