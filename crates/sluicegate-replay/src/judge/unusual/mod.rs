//! Traffic that is unusual for the log: bursts of new clients, and networks, user agents and paths that many clients suddenly share.
//!
//! ```text
//! requests in order --> cells, by minute and client --> windows, and what is usual in them --> episodes --> their clients
//! ```
//!
//! It reads no limit and changes no decision: floats are fine here.

mod cells;
mod even;
mod find;
mod members;
mod robust;
mod windows;

use std::collections::HashMap;

use smallvec::SmallVec;

pub(super) use self::cells::MinuteCells;
pub(super) use self::find::find;
use crate::judge::figures::MINUTE_US;
use crate::unusual::{Unusual, UnusualKind};

/// An unusual part of the log, and the clients that make it.
#[derive(Debug)]
pub(super) struct UnusualPart {
    pub(super) kind: UnusualKind,
    pub(super) what: String,
    /// The first minute, and the one after the last.
    pub(super) minutes: (u32, u32),
    pub(super) requests: u64,
    pub(super) keys: u64,
    /// The numbers of the clients.
    pub(super) clients: Vec<u32>,
}

/// All findings of a log, and whether a request is part of one.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) all: Vec<UnusualPart>,
    /// The spans of each client, in minutes.
    spans: HashMap<u32, SmallVec<[(u32, u32); 1]>>,
}

impl Findings {
    /// Findings in the order of their beginnings.
    fn of(mut all: Vec<UnusualPart>) -> Self {
        all.sort_by_key(|found| (found.minutes, std::cmp::Reverse(found.requests)));
        let mut spans: HashMap<u32, SmallVec<[(u32, u32); 1]>> = HashMap::new();
        for found in &all {
            for client in &found.clients {
                let known = spans.entry(*client).or_default();
                if !known.contains(&found.minutes) {
                    known.push(found.minutes);
                }
            }
        }
        Self { all, spans }
    }

    /// Whether a request of this client at this time is part of any finding.
    pub(super) fn hold(&self, client: u32, at_us: u64) -> bool {
        let minute = u32::try_from(at_us / MINUTE_US).unwrap_or(u32::MAX);
        self.spans
            .get(&client)
            .is_some_and(|spans| spans.iter().any(|(first, end)| (*first..*end).contains(&minute)))
    }

    /// The findings for the outcome.
    pub(super) fn told(&self) -> Vec<Unusual> {
        let of = |found: &UnusualPart| Unusual {
            kind: found.kind,
            what: found.what.clone(),
            from_us: u64::from(found.minutes.0) * MINUTE_US,
            to_us: u64::from(found.minutes.1) * MINUTE_US,
            requests: found.requests,
            keys: found.keys,
        };
        self.all.iter().map(of).collect()
    }
}
