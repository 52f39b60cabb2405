//! The weight of a limit: the README's first program beside the same program without a limit and with `tower_governor`, by the processor
//! time of a clean build, by the size of a stripped release binary, by its start and by its memory.
//!
//! The time is that of cargo and all that it starts, in user and in system mode, of the profile `dev`; everything is downloaded before.
//! A start ends with the first answer, and its memory is what is resident then.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::harness::{Aim, Bench, Row};

const MANIFEST: &str = r#"[package]
name = "NAME"
version = "0.0.0"
edition = "2024"

[dependencies]
axum = "0.8"
tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
LIMITER

[profile.release]
strip = true

[workspace]
"#;

/// The lines of the README that limit, and those in their place.
const IMPORT: &str = "use sluicegate::{MemoryStore, Policy, RateLimitExt};\n";
const LIMIT: &str = "    let limit = Policy::gcra(\"hello\", \"5/min\").on(MemoryStore::new())?;\n";
const LIMITED: &str = ".rate_limit(limit)";
const GOVERNOR: &str = "    let config = tower_governor::governor::GovernorConfigBuilder::default().per_second(12).burst_size(5).finish();
    let limit = tower_governor::GovernorLayer::new(config.ok_or(\"no quota is 0\")?);\n";

const TIME: &str = "clean build of the README's program, over one without a limit";
const SIZE: &str = "stripped release binary of the README's program, over one without a limit";
const START: &str = "start of the README's program to its first answer, over one without a limit";
const MEMORY: &str = "resident memory of the README's program, over one without a limit";
/// A build takes too long for as many rounds as other benches have.
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    let mut bench = Bench::from_args("Builds; the reference is tower_governor");
    if !bench.is_smoke() && [TIME, SIZE, START, MEMORY].iter().any(|work| bench.wants(work)) {
        let programs = programs();
        if bench.wants(TIME) {
            let rounds = bench.rounds().0.min(ROUNDS);
            let seconds: Vec<[f64; 3]> =
                (0..rounds).map(|_| programs.each_ref().map(|program| program.clean_build())).collect();
            let over_bare =
                |side: usize| -> Vec<f64> { seconds.iter().map(|round| round[side] - round[2]).collect() };
            bench.record(Row::of_rounds(TIME, "CPU s", &over_bare(0), &over_bare(1), Aim::Ours(8.0)));
            let bare: Vec<String> = seconds.iter().map(|[.., bare]| format!("{bare:.1}")).collect();
            bench.note(format!("the program without a limit took {} CPU s", bare.join(", ")));
        }
        if bench.wants(SIZE) {
            let [ours, theirs, bare] = programs.each_ref().map(|program| program.size() as f64 / 1e6);
            bench.record(Row::fixed(SIZE, "MB", ours - bare, theirs - bare, Aim::Ours(1.0)));
            bench.note(format!("the program without a limit has {bare:.2} MB"));
        }
        if bench.wants(START) || bench.wants(MEMORY) {
            programs.iter().for_each(|program| _ = program.size());
            let starts: Vec<[Start; 3]> =
                (0..bench.rounds().0).map(|_| programs.each_ref().map(Program::start)).collect();
            let over_bare = |side: usize, number: fn(&Start) -> f64| -> Vec<f64> {
                starts.iter().map(|round| number(&round[side]) - number(&round[2])).collect()
            };
            let row = |work, unit, number: fn(&Start) -> f64| {
                Row::of_rounds(work, unit, &over_bare(0, number), &over_bare(1, number), Aim::Ours(1.0))
            };
            bench.record(row(START, "ms", |start| start.ms));
            bench.record(row(MEMORY, "MB", |start| start.resident_mb));
        }
    }
    bench.finish()
}

/// A package with one program.
struct Program {
    name: &'static str,
    folder: PathBuf,
}

/// A program that has answered once.
struct Start {
    ms: f64,
    resident_mb: f64,
}

/// The program with our limit, with theirs, and without one.
fn programs() -> [Program; 3] {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().expect("it is there");
    let readme = fs::read_to_string(root.join("README.md")).expect("the README is there");
    let (_, program) = readme.split_once("```rust,no_run\n").expect("the README has a program");
    let (ours, _) = program.split_once("```").expect("a block ends");
    let ours = &ours.replace("\"127.0.0.1:3000\"", "std::env::args().nth(1).expect(\"an address\")");
    for line in [IMPORT, LIMIT, LIMITED] {
        assert!(ours.contains(line), "the README's program has no {line:?}:\n{ours}");
    }
    let theirs = ours.replace(IMPORT, "").replace(LIMIT, GOVERNOR).replace(LIMITED, ".layer(limit)");
    let bare = ours.replace(IMPORT, "").replace(LIMIT, "").replace(LIMITED, "");
    let sluicegate = format!("sluicegate = {{ path = {:?} }}", root.join("crates/sluicegate"));
    [
        Program::written("ours", ours, &sluicegate, &root),
        Program::written("theirs", &theirs, "tower_governor = \"0.8\"", &root),
        Program::written("bare", &bare, "", &root),
    ]
}

impl Program {
    fn written(name: &'static str, text: &str, limiter: &str, root: &Path) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build").join(name);
        fs::create_dir_all(folder.join("src")).expect("the folder is made");
        fs::write(folder.join("src/main.rs"), text).expect("the file is written");
        let manifest = MANIFEST.replace("NAME", name).replace("LIMITER", limiter);
        fs::write(folder.join("Cargo.toml"), manifest).expect("the file is written");
        // The versions that everything else is built with.
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file is there");
        Self { name, folder }
    }

    /// Processor seconds.
    fn clean_build(&self) -> f64 {
        let target = self.folder.join("target/debug");
        if target.exists() {
            fs::remove_dir_all(target).expect("it is ours");
        }
        let before = seconds_of_children();
        self.cargo(&["build"]);
        seconds_of_children() - before
    }

    /// Bytes of the stripped binary.
    fn size(&self) -> u64 {
        self.cargo(&["build", "--release"]);
        fs::metadata(self.folder.join("target/release").join(self.name)).expect("it is built").len()
    }

    /// Starts the release binary, and ends it after its first answer.
    fn start(&self) -> Start {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("there is a loopback interface");
        let start = Instant::now();
        let program =
            Command::new(self.folder.join("target/release").join(self.name)).arg(address.to_string()).spawn();
        let mut program = program.expect("it is built");
        first_answer(address);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let status = fs::read_to_string(format!("/proc/{}/status", program.id())).expect("Linux has it");
        program.kill().and_then(|()| program.wait()).expect("it is ours");
        let (_, resident) = status.split_once("VmRSS:").expect("a process has resident memory");
        let kib: f64 = resident.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number");
        Start { ms, resident_mb: kib * 1024.0 / 1e6 }
    }

    fn cargo(&self, arguments: &[&str]) {
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            .args(["--quiet", "--offline", "--target-dir", "target"])
            .current_dir(&self.folder)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the program {} does not compile", self.name);
    }
}

/// Asks again and again until there is an answer.
fn first_answer(address: SocketAddr) {
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Processor time of all processes that this one has started and waited for, and of those that they have.
fn seconds_of_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has it");
    // Behind the name, which may have spaces: the state, ten fields, its own two times, and in hundredths those of its children.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() as f64 / 100.0
}
