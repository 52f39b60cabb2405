//! The script: what goes in.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use redis::Cmd;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::Mode;
use sluicegate_core::{ConfigError, Decision, Outcome, Policy, StoreError};

use crate::call::micros;
use crate::cell::{self, Bucket, Cell};
use crate::link::Probe;
use crate::reply::Reply;
use crate::text::{packed, push};

/// The rules of `sluicegate_core::algorithm` in Lua: one constant text, so that Redis caches it once. The long way is a
/// function within the loop of the short one, which costs a call nothing that does not need it.
const TEXT: &str = concat!(
    include_str!("lua/head.lua"),
    include_str!("lua/fast.lua"),
    include_str!("lua/numbers.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/window.lua"),
    include_str!("lua/counter.lua"),
    include_str!("lua/log.lua"),
    include_str!("lua/value.lua"),
    include_str!("lua/inherit.lua"),
    include_str!("lua/ask.lua"),
    include_str!("lua/change.lua"),
    include_str!("lua/request.lua"),
    include_str!("lua/reply.lua"),
);

/// What `EVALSHA` calls it by.
static DIGEST: LazyLock<String> = LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned());

/// How to name the script: by digest, or, if the server does not know that, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Digest,
    Text,
}

/// One call that decides several requests, each for itself; all of them must live in one slot if this is for a Cluster.
pub(crate) fn command<'a>(
    call: Call,
    requests: impl Iterator<Item = &'a [Cell]> + Clone,
    time: Option<u64>,
) -> Cmd {
    let keys: usize = requests.clone().map(<[Cell]>::len).sum();
    let (name, script) = match call {
        Call::Digest => ("EVALSHA", DIGEST.as_str()),
        Call::Text => ("EVAL", TEXT),
    };
    let mut command = Cmd::with_capacity(6 + keys, 128 * keys + script.len());
    command.arg(name).arg(script).arg(keys);
    let mut orders = Vec::with_capacity(8 + 32 * keys);
    push(&mut orders, time.unwrap_or(0));
    let mut texts: Vec<&[u8]> = Vec::new();
    for cells in requests {
        // Asks for the same bucket have to see each other.
        let mut names = HashSet::with_capacity(if cells.len() > 1 { cells.len() } else { 0 });
        let is_plain = cells.len() == 1 || cells.iter().all(|cell| names.insert(cell.name()));
        for (index, cell) in cells.iter().enumerate() {
            command.arg(cell.name());
            let text = &*cell.bucket.text;
            let place = texts.iter().position(|known| *known == text).unwrap_or_else(|| {
                texts.push(text);
                texts.len() - 1
            });
            let is_last = index + 1 == cells.len();
            order(&mut orders, cell, is_plain, is_last, u8::try_from(place + 2).unwrap_or(u8::MAX));
        }
    }
    command.arg(orders);
    for text in texts {
        command.arg(text);
    }
    command
}

/// What is asked of one key; see `lua/head.lua`.
fn order(orders: &mut Vec<u8>, cell: &Cell, is_plain: bool, is_last: bool, text: u8) {
    // What is marked, or comes with its turn, takes the long way.
    let is_short = is_plain && matches!(cell.apart, None | Some((0, 0)));
    let mode = mode(cell.mode) + if is_short { 0 } else { 8 };
    let way = cell.bucket.way + if cell.bucket.gives_back { 8 } else { 0 };
    orders.extend_from_slice(&[mode, u8::from(is_last), text, way]);
    let extra = extra(cell);
    orders.extend_from_slice(&u16::try_from(extra.len()).unwrap_or(u16::MAX).to_le_bytes());
    push(orders, cell.bucket.since_us);
    for cost in &cell.costs {
        push(orders, *cost);
    }
    orders.extend_from_slice(&extra);
}

fn mode(mode: Mode) -> u8 {
    match mode {
        Mode::Spend => 0,
        Mode::Reserve { .. } => 2,
        Mode::Charge => 3,
        Mode::Refund => 4,
        Mode::Reset => 5,
        Mode::Return => 6,
        Mode::Depart => 7,
        // `Mode` may grow; a store that does not know a mode must not spend more than was meant.
        _ => 1,
    }
}

/// What only some asks need: the longest wait, what was spent before, the turn and the mark of a request in several slots.
fn extra(cell: &Cell) -> Vec<u8> {
    let mut extra = Vec::new();
    let longest_us = match cell.mode {
        Mode::Reserve { longest } => micros(longest),
        _ => 0,
    };
    let (due_us, mark_us) = cell.apart.unwrap_or_default();
    let (at_us, is_held) = cell.spent.as_ref().map_or((due_us, false), |spent| (spent.at_us, spent.is_held));
    if cell.spent.is_none() && (longest_us, due_us, mark_us) == (0, 0, 0) {
        return extra;
    }
    push(&mut extra, longest_us);
    push(&mut extra, at_us);
    // An account of what was given back is kept for all; policies that do not ask for it refund as in memory, without.
    let is_exact = cell.bucket.gives_back || cell.apart.is_some();
    extra.push(u8::from(is_held) + 2 * u8::from(is_exact));
    push(&mut extra, mark_us);
    let Some(spent) = &cell.spent else { return extra };
    if spent.traces.len() == cell.bucket.rules.len() {
        for (rule, (cost, trace)) in cell.bucket.rules.iter().zip(&spent.traces) {
            let [before, after] = [trace.before, trace.after].map(|state| packed(rule, state));
            let head = [*cost, trace.found, trace.given, trace.birth];
            for number in head.into_iter().chain(before).chain(after) {
                push(&mut extra, number);
            }
        }
    }
    extra
}

/// A bucket of nobody: charged, looked at and forgotten, it shows whether the server can run the script, and finds again what
/// that has written. No other instance has its name, so that it cannot come in between.
pub(crate) fn probe(prefix: &str) -> Result<Probe, ConfigError> {
    let policy =
        Policy::gcra(format!("probe-{:016x}", RandomState::new().hash_one(prefix)), "1/10s").build()?;
    let bucket = Arc::new(Bucket::new(prefix, &policy, Inherit::Spent, 0)?);
    let cell = Cell::probe(cell::name(prefix, policy.name(), "probe"), bucket);
    let mut probe = Probe::default();
    for (call, mode, outcome) in [
        (Call::Text, Mode::Charge, Outcome::Allowed),
        (Call::Text, Mode::Peek, Outcome::Denied),
        // By digest, as most calls are: that is another right.
        (Call::Digest, Mode::Reset, Outcome::Allowed),
    ] {
        let cells = [cell.with_mode(mode)];
        let command = command(call, std::iter::once(&cells[..]), None);
        probe.step(command, move |reply| {
            expect(outcome, Reply::read(reply).and_then(|mut reply| reply.decision(&cells)))
        });
    }
    Ok(probe)
}

fn expect(outcome: Outcome, said: Option<Decision>) -> Result<(), String> {
    match said {
        Some(decision) if decision.outcome() == outcome => Ok(()),
        Some(_) => Err("the server does not find again what the script has written".to_owned()),
        None => Err("the reply is not that of the sluicegate script".to_owned()),
    }
}

/// Something else answers to the script's name, or the connection is out of step.
pub(crate) fn not_ours() -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, "the reply is not that of the sluicegate script")
}
