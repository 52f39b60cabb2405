//! A process and all that it has used: [`run`].

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Of a process that has ended.
pub(crate) struct Used {
    /// Processor time of all its threads, in its own code and in the kernel.
    pub(crate) cpu: Duration,
    /// Memory at its peak.
    pub(crate) peak_kib: u64,
}

/// Runs a process to its end. Linux tells of one that has ended how long it ran until somebody has waited for it; its peak of memory
/// is looked at until then.
pub(crate) fn run(command: &mut Command) -> Used {
    let mut process = command.stdout(Stdio::null()).spawn().expect("it is installed");
    let folder = format!("/proc/{}", process.id());
    let mut peak_kib = 0;
    let cpu = loop {
        let status = fs::read_to_string(format!("{folder}/status")).expect("nobody has waited for it");
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = peak.unwrap_or(peak_kib);
        let stat = fs::read_to_string(format!("{folder}/stat")).expect("nobody has waited for it");
        // Behind the name, which may have spaces: the state, and eleven fields on the time in user and in system mode.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        if fields[0] == "Z" {
            let ticks: u64 = fields[11..13].iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
            break Duration::from_millis(ticks * 10);
        }
        thread::sleep(Duration::from_millis(5));
    };
    let status = process.wait().expect("it is ours");
    assert!(status.success(), "{command:?}: {status}");
    Used { cpu, peak_kib }
}
