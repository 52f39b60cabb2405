//! The script and its input.
//!
//! One [text](super::script) in Lua decides everything, under one digest; `lua/head.lua` describes the format of values, orders and
//! replies in full.
//!
//! # An order
//! ```text
//! KEYS     one name per ask
//! ARGV[1]  f64  the time in microseconds; 0 for the server's
//!          f64  the deadline, by the server's clock
//!          then per ask:
//!            u8   mode: 0 spend, 1 peek, 2 reserve, 3 charge, 4 refund, 5 reset, 6 return, 7 take,
//!                 8 lease; +128 for the long way
//!            u8   1 if it is the last ask of its request
//!            u8   place of the policy's numbers in ARGV
//!            u8   how keys of other rules start (0 to 4); +8 if it keeps account of what is given
//!                 back; +16 if its peeks write nothing;
//!                 +32 if it spends although it is refused; +64 if its keys bring quotas of their own;
//!                 +128 if its request is not carried out after the deadline
//!            u16  bytes of the extra part
//!            f64  since when: what was spent before is forgotten; 0 for always
//!            f64  cost, per quota
//!            ..   the extra part: longest wait, receipt, and mark of a request in several slots
//! ARGV[2..] numbers and texts of policies, in turn and each once
//! ```
//!
//! # A reply
//! One string of doubles. First the time, then per request 2 if the deadline had passed, or 0 and six numbers per quota: the
//! state *found* in the bucket and the script's verdict, followed for a lease by the floors found (the
//! short way: Rust derives the statuses and checks the verdict, which is cheaper than a longer reply),
//! or 1 and all results (the long way).

use std::collections::HashSet;

use redis::Cmd;
use sluicegate_core::algorithm::State;
use sluicegate_core::clock::micros;
use sluicegate_core::store::Mode;

use super::ask::{KeyAsk, ReceiptData};
use super::script::SCRIPT;
use crate::connection::ScriptName;
use crate::store::prepared::{Prepared, push};

/// One call that decides several requests independently; on a Cluster, all their keys must be in one slot.
///
/// The rules of policies are sent with every call, about 70 bytes for a policy of one quota: a server
/// without any state can decide the next call. They are sent as numbers, for immediate use, and as the text of values.
pub(super) fn command<'a>(
    name: ScriptName,
    requests: impl Iterator<Item = &'a [KeyAsk]> + Clone,
    time: Option<u64>,
    deadline_us: u64,
) -> Cmd {
    let keys: usize = requests.clone().map(<[KeyAsk]>::len).sum();
    let [command, script] = SCRIPT.named(name);
    let mut cmd = Cmd::with_capacity(6 + keys, 128 * keys + script.len());
    cmd.arg(command).arg(script).arg(keys);
    let mut orders = Vec::with_capacity(8 + 32 * keys);
    push(&mut orders, time.unwrap_or(0));
    push(&mut orders, deadline_us);
    let mut policies: Vec<&Prepared> = Vec::new();
    for asks in requests {
        let (is_plain, expires) = (is_plain(asks), expires(asks));
        for (index, ask) in asks.iter().enumerate() {
            cmd.arg(&ask.name);
            let known = policies
                .iter()
                .position(|known| known.text == ask.prepared.text && known.numbers == ask.prepared.numbers);
            let place = known.unwrap_or_else(|| {
                policies.push(&ask.prepared);
                policies.len() - 1
            });
            let is_last = index + 1 == asks.len();
            order(
                &mut orders,
                ask,
                (is_plain, expires, is_last),
                u8::try_from(2 * place + 2).unwrap_or(u8::MAX),
            );
        }
    }
    cmd.arg(orders);
    for prepared in policies {
        cmd.arg(&prepared.numbers).arg(&prepared.text);
    }
    cmd
}

/// Whether a request is not carried out after its deadline: somebody else has decided it by then.
pub(super) fn expires(asks: &[KeyAsk]) -> bool {
    asks.iter().all(|ask| ask.expires)
}

/// Whether the short way may decide this request. Asks for the same bucket affect each other, which the short way supports
/// only for a lease directly behind a spend. Leases get the units that all other asks leave, the same number from each quota.
fn is_plain(asks: &[KeyAsk]) -> bool {
    let is_lease = |ask: &&KeyAsk| ask.mode == Mode::Lease;
    let is_even = |ask: &KeyAsk| ask.costs.iter().all(|cost| *cost == ask.costs[0]);
    if !asks.iter().skip_while(|ask| !is_lease(ask)).all(|ask| is_lease(&ask) && is_even(ask)) {
        return false;
    }
    let mut names = HashSet::with_capacity(if asks.len() > 1 { asks.len() } else { 0 });
    asks.len() == 1
        || asks.iter().enumerate().all(|(place, ask)| {
            names.insert(&ask.name) || place.checked_sub(1).is_some_and(|before| ask.is_behind(&asks[before]))
        })
}

/// The ask about one key; see `lua/head.lua`.
///
/// Bytes instead of arguments: each further argument of a command costs Redis more than the few bytes
/// in it.
fn order(orders: &mut Vec<u8>, ask: &KeyAsk, (is_plain, expires, is_last): (bool, bool, bool), text: u8) {
    // An ask with a mark or a calendar takes the long way.
    let is_short = is_plain && ask.marked_us.unwrap_or(0) == 0 && !ask.prepared.has_calendar;
    let mode = ask.mode.number() + if is_short { 0 } else { 128 };
    let Prepared { way, gives_back, is_onlooker, counts_rejected, takes_quotas, .. } = *ask.prepared;
    // With several slots, the refusal is known only when all slots have answered.
    let counts_rejected = counts_rejected && ask.marked_us.is_none();
    let way = way + 8 * u8::from(gives_back) + 16 * u8::from(is_onlooker) + 32 * u8::from(counts_rejected);
    let way = way + 64 * u8::from(takes_quotas) + 128 * u8::from(expires);
    orders.extend_from_slice(&[mode, u8::from(is_last), text, way]);
    let extra = extra(ask);
    orders.extend_from_slice(&u16::try_from(extra.len()).unwrap_or(u16::MAX).to_le_bytes());
    push(orders, ask.prepared.since_us);
    for cost in &ask.costs {
        push(orders, *cost);
    }
    orders.extend_from_slice(&extra);
}

/// The numbers that only some asks need: the longest wait, the earlier spend, and the mark of a request in several slots.
///
/// Most asks need none, and then nothing is sent. Receipts are sent with their traces, so that
/// the script can give units back exactly without a record of each spend.
fn extra(ask: &KeyAsk) -> Vec<u8> {
    let mut extra = Vec::new();
    let longest_us = ask.mode.longest_wait().map_or(0, micros);
    let marked_us = ask.marked_us.unwrap_or(0);
    if ask.spent.is_none() && (longest_us, marked_us) == (0, 0) {
        return extra;
    }
    push(&mut extra, longest_us);
    push(&mut extra, ask.spent.as_ref().map_or(0, |spent| spent.at_us));
    // An account of refunds is kept for all policies; policies that do not require it refund without the account, as in memory.
    let is_exact = ask.prepared.gives_back || ask.marked_us.is_some();
    let is_lease = |spent: &ReceiptData| spent.traces.iter().any(|(_, trace)| trace.floor.is_some());
    let is_lease = ask.spent.as_ref().is_some_and(is_lease);
    let is_final = ask.prepared.is_final && !is_exact;
    let flags = [is_final, is_lease, is_exact];
    extra.push(flags.into_iter().fold(0, |all, flag| 2 * all + u8::from(flag)));
    push(&mut extra, marked_us);
    let Some(spent) = &ask.spent else { return extra };
    if spent.traces.len() == ask.prepared.rules.len() {
        for (rule, (cost, trace)) in ask.prepared.rules.iter().zip(&spent.traces) {
            let [before, after] = [trace.before, trace.after].map(|state| rule.words(state));
            let head = [*cost, trace.found, trace.given, trace.birth];
            for number in head.into_iter().chain(before).chain(after) {
                push(&mut extra, number);
            }
        }
        for (_, trace) in spent.traces.iter().filter(|_| is_lease) {
            let floor = trace.floor.unwrap_or(State::REST);
            push(&mut extra, floor.until_us);
            push(&mut extra, floor.aux);
        }
    }
    extra
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_core::Policy;
    use sluicegate_core::limiter::Inherit;

    use super::*;

    #[test]
    fn a_lease_takes_the_short_way_alone_and_directly_behind_the_spend_of_its_bucket() {
        let policy = Policy::gcra("any", "5/s").and("50/min").build().expect("it is possible");
        let prepared = Prepared::new("rl", &policy, Inherit::Spent, 0, 0).expect("the rules can be told");
        let ask = KeyAsk::probe("one".to_owned(), Arc::new(prepared));
        let other = KeyAsk::probe("another".to_owned(), Arc::clone(&ask.prepared));
        let of = |mode: Mode, costs: [u64; 2]| {
            let mut of = ask.with_mode(mode);
            of.costs = costs.into_iter().collect();
            of
        };
        let [spend, lease, charge] = [Mode::Spend, Mode::Lease, Mode::Charge].map(|mode| of(mode, [2, 2]));
        let uneven = of(Mode::Lease, [2, 3]);
        let elsewhere = other.with_mode(Mode::Spend);
        let all = |asks: &[&KeyAsk]| is_plain(&asks.iter().copied().cloned().collect::<Vec<_>>());
        assert!(all(&[&lease]) && all(&[&spend, &lease]) && all(&[&elsewhere, &spend, &lease]));
        assert!(!all(&[&uneven]) && !all(&[&spend, &uneven]));
        assert!(
            !all(&[&spend, &elsewhere, &lease])
                && !all(&[&charge, &lease])
                && !all(&[&spend, &lease, &lease])
        );
        assert!(!all(&[&lease, &elsewhere]) && !all(&[&lease, &spend]) && !all(&[&spend, &spend]));
    }
}
