//! Counts what this program does, by itself under Valgrind.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, process};

/// What one request took.
#[derive(Clone, Copy)]
pub(crate) struct Bill {
    pub(crate) instructions: f64,
    /// Allocations and reallocations.
    pub(crate) allocations: f64,
}

impl Bill {
    pub(crate) fn more_than(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            allocations: self.allocations - other.allocations,
        }
    }
}

/// The part of the program that is counted. Two functions, because callgrind does one thing where it enters a function: here it
/// forgets the calls until then, and in the next it counts.
#[inline(never)]
pub(crate) fn counted(side: &mut dyn FnMut(u64), times: u64) {
    within(side, times);
    black_box(());
}

#[inline(never)]
fn within(side: &mut dyn FnMut(u64), times: u64) {
    side(times);
    black_box(());
}

/// Runs this program with these arguments; it calls [`counted`] once with this count.
pub(crate) fn run(args: &[&str], times: u64) -> Bill {
    let path = env::temp_dir().join(format!("sluicegate-bill-{}", process::id()));
    let program = env::current_exe().expect("a running program has a path");
    let status = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--compress-strings=no"])
        .args(["--zero-before=*callgrind::counted*", "--toggle-collect=*callgrind::within*"])
        .arg(format!("--callgrind-out-file={}", path.display()))
        .arg(program)
        .args(args)
        .stderr(Stdio::null())
        .status()
        .expect("valgrind is installed: apt-get install valgrind");
    assert!(status.success(), "{args:?} has ended with {status}");
    let bill = read(&path, times as f64);
    fs::remove_file(&path).expect("valgrind has written it");
    bill
}

/// Reads the sum of all instructions, and the calls of the functions that allocate.
fn read(path: &Path, times: f64) -> Bill {
    let text = fs::read_to_string(path).expect("valgrind has written it");
    let (mut instructions, mut allocations, mut called) = (0.0, 0.0, "");
    for line in text.lines() {
        let (name, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
        let number = || value.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
        match name {
            "cfn" => called = value,
            "calls" if matches!(called, "malloc" | "calloc" | "realloc" | "posix_memalign") => {
                allocations += number().unwrap_or(0.0);
            }
            "totals" => instructions = number().unwrap_or(f64::NAN),
            _ => {}
        }
    }
    Bill { instructions: instructions / times, allocations: allocations / times }
}
