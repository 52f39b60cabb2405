//! The script: what goes in, and what comes out.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use redis::{Cmd, Value};
use sluicegate_core::algorithm::Rule;
use sluicegate_core::{ConfigError, Decision, Mode, Outcome, Policy, Standing, StoreError, StoreErrorKind};

use crate::cell::{Bucket, Cell};
use crate::link::Probe;
use crate::short::{self, Reply};

/// The rules of `sluicegate_core::algorithm` in Lua: a few constant texts, so that Redis caches each once.
struct Script {
    text: &'static str,
    /// What `EVALSHA` calls it by.
    digest: LazyLock<String>,
}

/// A script of its parts; the request comes last.
macro_rules! script {
    ($name:ident: $($part:literal)*) => {
        static $name: Script = {
            const TEXT: &str = concat!(
                include_str!("lua/head.lua"),
                $(include_str!(concat!("lua/", $part, ".lua")),)*
                include_str!("lua/request.lua"),
            );
            Script { text: TEXT, digest: LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned()) }
        };
    };
}

// Redis makes the functions of a script anew with every call: a sixth of what it costs is saved by leaving out those of
// algorithms that the request does not have.
script!(GCRA: "gcra" "strings");
script!(WINDOW: "window" "strings");
script!(COUNTER: "counter" "strings");
script!(LOG: "log");
script!(ALL: "gcra" "window" "counter" "strings" "log");

/// The script that knows the rules of all cells.
fn script(cells: &[Cell]) -> &'static Script {
    let one = |cell: &Cell| match cell.rule {
        Rule::Gcra(_) => &GCRA,
        Rule::FixedWindow(_) => &WINDOW,
        Rule::SlidingCounter(_) => &COUNTER,
        Rule::SlidingLog(_) => &LOG,
        _ => &ALL,
    };
    let mut scripts = cells.iter().map(one);
    let first = scripts.next().unwrap_or(&ALL);
    if scripts.all(|script| std::ptr::eq(script, first)) { first } else { &ALL }
}

/// How to name a script: by digest, or, if the server does not know that, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Digest,
    Text,
}

impl Call {
    /// The command that calls a script with so many keys.
    pub(crate) fn of(self, digest: &str, text: &str, keys: usize) -> Cmd {
        let (name, script) = match self {
            Self::Digest => ("EVALSHA", digest),
            Self::Text => ("EVAL", text),
        };
        let mut command = Cmd::with_capacity(4 + 14 * keys, 128 * keys + script.len());
        command.arg(name).arg(script).arg(keys);
        command
    }
}

/// One script call that decides all cells; all of them must live in one slot if this is for a cluster.
pub(crate) fn command(call: Call, cells: &[Cell], time: Option<u64>) -> Cmd {
    let logs = cells.iter().filter(|cell| matches!(cell.rule, Rule::SlidingLog(_))).count();
    let script = script(cells);
    let mut command = call.of(&script.digest, script.text, cells.len() + logs);
    for cell in cells {
        command.arg(cell.name());
        if let Some(sum) = cell.sum_name() {
            command.arg(sum);
        }
    }
    match time {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    let mut orders = Vec::with_capacity(80 * cells.len());
    for cell in cells {
        let (mode, span_us) = mode(cell);
        let numbers = numbers(&cell.rule);
        #[expect(clippy::cast_precision_loss, reason = "as where Lua would read them")]
        let all =
            [mode as f64, cell.cost as f64, span_us as f64].into_iter().chain(numbers.map(|n| n as f64));
        orders.extend(all.flat_map(f64::to_le_bytes));
    }
    command.arg(orders);
    command
}

fn mode(cell: &Cell) -> (u64, u64) {
    match cell.mode {
        Mode::Peek => (1, 0),
        Mode::Reserve { longest } => (2, u64::try_from(longest.as_micros()).unwrap_or(u64::MAX)),
        // 0 is a moment long ago: the script takes it for one that is not known.
        Mode::Refund => (3, cell.spent_us.unwrap_or(0)),
        Mode::Charge => (4, 0),
        Mode::Reset => (5, 0),
        // `Mode` may grow; a store that does not know a mode must not spend more than was meant.
        _ => (0, 0),
    }
}

/// Buckets of nobody: charged, looked at and forgotten, they show whether the server can run each script, and finds again what
/// one has written. No other instance has their names, so that it cannot come in between.
pub(crate) fn probe(prefix: &str) -> Result<Probe, ConfigError> {
    let name = format!("probe-{:016x}", RandomState::new().hash_one(prefix));
    let mut probe = Probe::default();
    let (mut looks, mut resets) = (Vec::new(), Vec::new());
    for policy in [Policy::gcra, Policy::sliding_log, Policy::fixed_window, Policy::sliding_counter] {
        let bucket = Bucket::new(prefix, &policy(&name, "1/10s").build()?.quotas()[0], "")?;
        let cell = |mode| Cell::new(&bucket, "probe", mode, 1, (0, 0));
        let charge = [cell(Mode::Charge)];
        probe.step(command(Call::Text, &charge, None), move |reply| {
            expect(Outcome::Allowed, decision(reply, &charge).ok())
        });
        looks.push(cell(Mode::Peek));
        resets.push(cell(Mode::Reset));
    }
    // A window may end in between.
    looks.truncate(2);
    let short = [looks[0].clone()];
    probe.step(short::command(Call::Text, std::iter::once(&short[..]), None), move |reply| {
        expect(Outcome::Denied, Reply::read(reply, 1).and_then(|reply| reply.decision(0, &short)))
    });
    probe.step(command(Call::Text, &looks, None), move |reply| {
        expect(Outcome::Denied, decision(reply, &looks).ok())
    });
    // By digest, as most calls are: that is another right.
    probe.step(command(Call::Digest, &resets, None), move |reply| {
        expect(Outcome::Allowed, decision(reply, &resets).ok())
    });
    Ok(probe)
}

fn expect(outcome: Outcome, said: Option<Decision>) -> Result<(), String> {
    match said {
        Some(decision) if decision.outcome() == outcome => Ok(()),
        Some(_) => Err("the server does not find again what the script has written".to_owned()),
        None => Err("the reply is not that of the sluicegate script".to_owned()),
    }
}

/// The kind of a rule and its numbers, as the script reads them.
fn numbers(rule: &Rule) -> [i64; 7] {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    match rule {
        Rule::FixedWindow(rule) => [
            2,
            number(rule.limit().get()),
            number(rule.period_us().get()),
            number(rule.burst()),
            number(rule.ceiling()),
            i64::from(rule.is_aligned()),
            0,
        ],
        Rule::SlidingCounter(rule) => [
            3,
            number(rule.limit()),
            number(rule.period_us().get()),
            number(rule.unit_us().get()),
            number(rule.ceiling()),
            0,
            0,
        ],
        Rule::SlidingLog(rule) => [4, number(rule.limit()), number(rule.period_us().get()), 0, 0, 0, 0],
        Rule::Gcra(rule) => [
            1,
            number(rule.unit_us().get()),
            number(rule.ticks().get()),
            number(rule.spacing().get()),
            number(rule.burst()),
            number(rule.ceiling()),
            if rule.undelayed() == u64::MAX { -1 } else { number(rule.undelayed()) },
        ],
        other => unreachable!("`RedisStore::open` refuses rules that the script does not know: {other:?}"),
    }
}

/// What the script said of one cell.
#[derive(Clone, Copy, Debug)]
struct Said {
    passed: bool,
    remaining: u64,
    reset_after_us: u64,
    available_after_us: u64,
    never: bool,
}

/// The script's reply as a decision.
pub(crate) fn decision(reply: &Value, cells: &[Cell]) -> Result<Decision, StoreError> {
    let (at_us, delay_us, said) = parse(reply, cells.len()).ok_or_else(not_ours)?;
    let standings = cells.iter().zip(&said).map(|(cell, said)| {
        Standing::new(
            cell.at,
            said.passed,
            cell.rule.capacity(),
            said.remaining,
            said.reset_after_us,
            said.available_after_us,
        )
        .spending(if said.passed && (cell.mode.spends() || cell.mode == Mode::Charge) {
            cell.cost
        } else {
            0
        })
    });
    let outcome = if said.iter().all(|said| said.passed) {
        Outcome::Allowed
    } else if said.iter().any(|said| said.never && !said.passed) {
        Outcome::Impossible
    } else {
        Outcome::Denied
    };
    Ok(Decision::new(outcome, at_us, delay_us, standings))
}

/// Something else answers to the script's name, or the connection is out of step.
pub(crate) fn not_ours() -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, "the reply is not that of the sluicegate script")
}

fn parse(reply: &Value, cells: usize) -> Option<(u64, u64, Vec<Said>)> {
    let Value::Array(values) = reply else { return None };
    let numbers: Vec<u64> = values
        .iter()
        .map(|value| match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let (&[at_us, delay_us], said) = numbers.split_first_chunk()?;
    let said: Vec<Said> = said
        .chunks_exact(5)
        .map(|said| Said {
            passed: said[0] == 1,
            remaining: said[1],
            reset_after_us: said[2],
            available_after_us: said[3],
            never: said[4] == 1,
        })
        .collect();
    (said.len() == cells && numbers.len() == 2 + 5 * cells).then_some((at_us, delay_us, said))
}
