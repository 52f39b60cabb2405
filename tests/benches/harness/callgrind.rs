//! Counts what this program does, by itself under Valgrind.

use std::process::{self, Command, Stdio};
use std::{env, fs};

/// What one request takes.
#[derive(Clone, Copy)]
pub(crate) struct Bill {
    pub(crate) instructions: f64,
    /// Allocations and reallocations.
    pub(crate) allocations: f64,
}

/// Requests of the first of two runs. The other one has more, and differs by these alone. In the first 1,000 requests of a process a layer
/// looks for proxies.
const FIRST: u64 = 1_000;

impl Bill {
    /// Runs this program twice, with these arguments and the number of requests to send, as `--side ARGS.. TIMES`; the second time
    /// with so many more.
    pub(crate) fn of(args: &[&str], more: u64) -> Self {
        let [few, many] = [FIRST, FIRST + more].map(|times| run(args, times));
        many.more_than(few).per(more as f64)
    }

    pub(crate) fn more_than(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            allocations: self.allocations - other.allocations,
        }
    }

    fn per(self, requests: f64) -> Self {
        Self { instructions: self.instructions / requests, allocations: self.allocations / requests }
    }
}

/// The arguments of a run that is counted, and its number of requests.
pub(crate) fn asked() -> Option<(Vec<String>, u64)> {
    let mut args = env::args().skip(1);
    if args.next()? != "--side" {
        return None;
    }
    let mut args: Vec<String> = args.collect();
    let times = args.pop().and_then(|times| times.parse().ok()).expect("the parent says how many requests");
    Some((args, times))
}

fn run(args: &[&str], times: u64) -> Bill {
    let path = env::temp_dir().join(format!("sluicegate-bill-{}", process::id()));
    let status = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", path.display()))
        .arg(env::current_exe().expect("a running program has a path"))
        .arg("--side")
        .args(args)
        .arg(times.to_string())
        .stderr(Stdio::null())
        .status()
        .expect("valgrind is installed: apt-get install valgrind");
    assert!(status.success(), "{args:?} has ended with {status}");
    let counts = fs::read_to_string(&path).expect("valgrind has written it");
    fs::remove_file(&path).expect("valgrind has written it");
    read(&counts)
}

/// Reads the sum of all instructions, and the calls of the functions that allocate.
fn read(counts: &str) -> Bill {
    let (mut bill, mut called) = (Bill { instructions: 0.0, allocations: 0.0 }, "");
    for line in counts.lines() {
        let (name, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
        let number = || value.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0);
        match name {
            "cfn" => called = value,
            "calls" if matches!(called, "malloc" | "calloc" | "realloc" | "posix_memalign") => {
                bill.allocations += number();
            }
            "totals" => bill.instructions = number(),
            _ => {}
        }
    }
    bill
}
