//! A log of ten million lines, replayed; the reference is `GoAccess`, which counts such a log.
//!
//! Each side is a process of its own, so that its processor time and its memory are the whole of it: this program again, told what
//! to do by its first argument, or a program of Debian. The log is written once, under `target/bench`.

mod harness;
#[path = "replay/log.rs"]
mod log;
#[path = "replay/process.rs"]
mod process;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::rules::{RulesFile, Variables};
use sluicegate::{MemoryStore, Policy};
use sluicegate_replay::{Replay, WithinSecond};

use crate::harness::{Aim, Bench, Row};
use crate::process::{Used, run};

const QUOTA: &str = "60/min burst 30";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [side, log] = &arguments[..]
        && let Some(work) = side.strip_prefix("side=")
    {
        side_of(work, log);
        return ExitCode::SUCCESS;
    }
    let mut bench = Bench::from_args("Replaying a log; the reference is GoAccess where nothing else is said");
    let lines = if bench.is_smoke() { 2_000 } else { 10_000_000 };
    let log = log::of(lines);
    // GoAccess ended by a fault of its own after ten million lines, so it reads a tenth of them: its rate is that of its best size, and
    // its memory that of a tenth.
    let tenth = log::of(lines / 10);
    let rounds = bench.rounds().0.min(3);
    let sides = ["one rule", "one rule, together", "100 rules", "by hand"];
    let mut ours = sides.map(|_| Vec::new());
    let (mut goaccess, mut wc) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (side, used) in sides.iter().zip(&mut ours) {
            used.push(run(Command::new(std::env::current_exe().expect("it runs"))
                .arg(format!("side={side}"))
                .arg(&log)));
        }
        wc.push(run(Command::new("wc").arg("-l").arg(&log)));
        goaccess.push(goaccess_of(&tenth, bench.is_smoke()));
    }
    let [one, together, hundred, by_hand] = ours;
    let rate_of = |lines: u64, used: &[Used]| {
        used.iter().map(|used| lines as f64 / 1e3 / used.cpu.as_secs_f64().max(0.01)).collect::<Vec<_>>()
    };
    let rate = |used: &[Used]| rate_of(lines, used);
    let seconds =
        |used: &[Used]| used.iter().map(|used| used.cpu.as_secs_f64().max(0.01)).collect::<Vec<_>>();
    let memory = |used: &[Used]| used.iter().map(|used| used.peak_kib as f64 / 1024.0).collect::<Vec<_>>();
    let per_second = "k/cpu s";
    bench.record(Row::of_rounds(
        "lines, requests of a second spread",
        per_second,
        &rate(&one),
        &rate_of(lines / 10, &goaccess),
        Aim::RatioAtLeast(10.0),
    ));
    bench.record(Row::of_rounds(
        "lines, requests of a second in batches",
        per_second,
        &rate(&together),
        &rate_of(lines / 10, &goaccess),
        Aim::RatioAtLeast(20.0),
    ));
    bench.record(Row::of_rounds(
        "memory at its peak",
        "MiB",
        &memory(&one),
        &memory(&goaccess),
        Aim::Ratio(1.0),
    ));
    bench.record(Row::of_rounds(
        "beside a program that parses and asks a RateLimiter by hand",
        "cpu s",
        &seconds(&one),
        &seconds(&by_hand),
        Aim::Ratio(1.6),
    ));
    bench.record(Row::of_rounds(
        "100 rules, beside one",
        "cpu s",
        &seconds(&hundred),
        &seconds(&one),
        Aim::Ratio(1.3),
    ));
    bench.record(Row::of_rounds("beside wc -l", "cpu s", &seconds(&one), &seconds(&wc), Aim::None));
    bench.finish()
}

/// Does the work of one side in this process.
fn side_of(work: &str, log: &str) {
    if work == "by hand" {
        return by_hand(log);
    }
    let rules =
        RulesFile::parse("rules.yaml", &rules(if work == "100 rules" { 100 } else { 1 }), &Variables::none());
    let mut replay = Replay::new(rules.expect("the rules are good")).expect("memory keeps them");
    if work == "one rule, together" {
        replay = replay.within_second(WithinSecond::Together);
    }
    let outcome = replay.run([(log, File::open(log).expect("it was written"))]).expect("it can be read");
    assert_eq!(outcome.lines.not_understood, 0);
    assert_eq!(outcome.rules.iter().map(|rule| rule.asked).sum::<u64>(), outcome.lines.read);
    println!("{outcome}");
}

/// One rule for all paths, or this many, each for a folder of its own.
fn rules(count: usize) -> String {
    let rule = |place: usize| match count {
        1 => "{ name: all, limit: p, key: client }".to_owned(),
        _ => format!(
            "{{ name: r{place}, group: g, limit: p{place}, key: client, only_if: {{ path: \"/shop-{place}/{{*rest}}\" }} }}"
        ),
    };
    let rules: Vec<String> = (0..count).map(rule).collect();
    let policy = |place: usize| {
        if count == 1 {
            format!("p: {{ quota: {QUOTA} }}")
        } else {
            format!("p{place}: {{ quota: {QUOTA} }}")
        }
    };
    let policies: Vec<String> = (0..count).map(policy).collect();
    format!("version: 1\npolicies: {{ {} }}\nrules: [{}]\n", policies.join(", "), rules.join(", "))
}

/// The same question as a program for this log alone answers it: no rules, no order, no other formats.
fn by_hand(log: &str) {
    let clock = ManualClock::new();
    let store =
        MemoryStore::builder().table_size(1 << 18).clock(clock.clone()).build().expect("it is a size");
    let limiter = Policy::gcra("p", QUOTA).on(&store).expect("memory keeps it");
    let mut counts: HashMap<IpAddr, (u64, u64)> = HashMap::new();
    let mut log = BufReader::with_capacity(1 << 18, File::open(log).expect("it was written"));
    let mut line = String::new();
    while log.read_line(&mut line).expect("it is text") > 0 {
        let (address, rest) = line.split_once(" - - [").expect("it has a time");
        let (time, rest) = rest.split_once("] \"").expect("it has a request");
        let (request, rest) = rest.split_once("\" ").expect("it has a status");
        let (method, target) = request.split_once(' ').expect("it has a URL");
        let path = target.split([' ', '?']).next().expect("there is a first part");
        let status: u16 =
            rest.split(' ').next().and_then(|status| status.parse().ok()).expect("it is a number");
        assert!(!method.is_empty() && path.starts_with('/') && status >= 200);
        let part = |from: usize| time[from..from + 2].parse::<u64>().expect("two digits");
        let second = ((part(0) * 24 + part(12)) * 60 + part(15)) * 60 + part(18);
        clock.set(Duration::from_secs(second));
        let address: IpAddr = address.parse().expect("it is an address");
        let decision = limiter.check(address).now().expect("memory answers at once").expect("it never fails");
        let count = counts.entry(address).or_default();
        count.0 += 1;
        count.1 += u64::from(!decision.is_allowed());
        line.clear();
    }
    let rejected: u64 = counts.values().map(|(_, rejected)| rejected).sum();
    println!("{} keys, {rejected} rejected", counts.len());
}

/// Debian's, which the script of the benchmarks installs. Where only everything is tried, something else stands for it.
fn goaccess_of(log: &Path, is_smoke: bool) -> Used {
    if is_smoke {
        return run(Command::new("wc").arg(log));
    }
    let out = log.with_extension("goaccess.json");
    let mut goaccess = Command::new("goaccess");
    goaccess.arg(log).args(["--log-format=COMBINED", "--no-global-config", "--no-progress", "-o"]).arg(out);
    run(&mut goaccess)
}
