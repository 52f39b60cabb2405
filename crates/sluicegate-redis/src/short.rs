//! The short script: for the commonest calls, and for several requests in one call.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use sluicegate_core::algorithm::{NEVER, Rule, State};
use sluicegate_core::{Decision, Mode, Outcome, Standing};

use crate::cell::Cell;
use crate::script::Call;

/// See there for what it does, and why there are two.
const TEXT: &str = include_str!("lua/short.lua");

static DIGEST: LazyLock<String> = LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned());

/// More than any room, and exact in a double.
const ENDLESS: u64 = 1 << 54;

/// Whether the short script can decide this request.
pub(crate) fn can_decide(cells: &[Cell]) -> bool {
    cells.iter().all(|cell| {
        matches!(cell.rule, Rule::Gcra(rule) if rule.undelayed() == u64::MAX)
            && matches!(cell.mode, Mode::Spend | Mode::Peek | Mode::Charge)
    }) && cells.iter().enumerate().all(|(at, cell)| {
        // Asks for the same bucket have to see each other.
        cells[..at].iter().all(|other| other.name() != cell.name())
    })
}

/// One call that decides several requests, each for itself.
pub(crate) fn command<'a>(
    call: Call,
    requests: impl Iterator<Item = &'a [Cell]> + Clone,
    time: Option<u64>,
) -> Cmd {
    let keys = requests.clone().map(<[Cell]>::len).sum();
    let mut command = call.of(&DIGEST, TEXT, keys);
    let mut orders = Vec::with_capacity(8 + 56 * keys);
    let mut push = |number: u64| {
        #[expect(clippy::cast_precision_loss, reason = "what is above 2^53 only has to stay above")]
        orders.extend_from_slice(&(number as f64).to_le_bytes());
    };
    push(time.unwrap_or(0));
    let mut last = 0;
    for cells in requests {
        last += cells.len();
        for cell in cells {
            command.arg(cell.name());
            for number in order(cell) {
                push(number);
            }
            push(last as u64);
        }
    }
    command.arg(orders);
    command
}

/// What has to fit, what is spent, the room, the ceiling, the parts per time unit, the time unit.
fn order(cell: &Cell) -> [u64; 6] {
    let Rule::Gcra(rule) = cell.rule else { unreachable!("`can_decide` says no to other rules") };
    let cost = cell.cost.saturating_mul(rule.spacing().get()).min(ENDLESS);
    let full = rule.burst().saturating_mul(rule.spacing().get());
    let (need, spent, room) = match cell.mode {
        Mode::Charge => (0, cost, ENDLESS),
        Mode::Spend => (cost, cost, full),
        _ => (cost, 0, full),
    };
    [need, spent, room, rule.ceiling(), rule.ticks().get(), rule.unit_us().get()]
}

/// What the script replied: the time, and the state of every bucket as it was before.
pub(crate) struct Reply {
    now_us: u64,
    found: Vec<Option<State>>,
}

impl Reply {
    /// Reads it, if it is one for so many buckets.
    pub(crate) fn read(reply: &Value, cells: usize) -> Option<Self> {
        let Value::BulkString(bytes) = reply else { return None };
        let (doubles, rest) = bytes.as_chunks::<8>();
        if doubles.len() != 1 + 2 * cells || !rest.is_empty() {
            return None;
        }
        let mut numbers = doubles.iter().map(|bytes| f64::from_le_bytes(*bytes));
        let now_us = whole(numbers.next()?)?;
        let found = std::iter::from_fn(|| Some((numbers.next()?, numbers.next()?)))
            .map(|(till, under)| Some(State::new(whole(till)?, whole(under)?)))
            .collect();
        Some(Self { now_us, found })
    }

    /// The decision of the request whose cells begin at `first`; `None` if the script has left it to the long one.
    pub(crate) fn decision(&self, first: usize, cells: &[Cell]) -> Option<Decision> {
        let states = self.found.get(first..first + cells.len())?;
        let now_us = self.now_us;
        let mut looks = smallvec::SmallVec::<[(State, u64); 4]>::new();
        for (cell, state) in cells.iter().zip(states) {
            let before = (*state)?;
            let opens_us = match cell.mode {
                Mode::Charge => now_us,
                _ => cell.rule.slot(before, now_us, cell.cost).opens_us,
            };
            looks.push((before, opens_us));
        }
        let granted = looks.iter().all(|(_, opens_us)| *opens_us <= now_us);
        let outcome = if granted {
            Outcome::Allowed
        } else if looks.iter().any(|(_, opens_us)| *opens_us == NEVER) {
            Outcome::Impossible
        } else {
            Outcome::Denied
        };
        let standings = cells.iter().zip(&looks).map(|(cell, (before, opens_us))| {
            let rule = &cell.rule;
            let after = match cell.mode {
                Mode::Spend if granted => rule.spend(*before, now_us, now_us, cell.cost),
                Mode::Charge if granted => rule.charge(*before, now_us, cell.cost).0,
                _ => *before,
            };
            let (passed, remaining) = (*opens_us <= now_us, rule.remaining(after, now_us));
            let available_us = match *opens_us {
                NEVER => now_us,
                opens_us if !passed => opens_us,
                _ if remaining < rule.capacity() => rule.slot(after, now_us, remaining + 1).opens_us,
                _ => now_us,
            };
            let reset_us = rule.reset_after_us(after, now_us);
            Standing::new(
                cell.at,
                passed,
                rule.capacity(),
                remaining,
                reset_us,
                available_us.saturating_sub(now_us),
            )
            .spending(if granted && cell.mode != Mode::Peek { cell.cost } else { 0 })
        });
        Some(Decision::new(outcome, now_us, 0, standings))
    }
}

/// A whole number of those that the script may write.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in the range of those")]
fn whole(number: f64) -> Option<u64> {
    (0.0..=9_007_199_254_740_991.0).contains(&number).then_some(number as u64)
}
