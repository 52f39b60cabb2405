//! Checks that the server runs the script and keeps its writes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::Mode;
use sluicegate_core::support::random;
use sluicegate_core::{ConfigError, Decision, Outcome, Policy, StoreError};

use super::ask::KeyAsk;
use super::command::command;
use super::reply::ScriptReply;
use crate::connection::{Probe, ScriptName};
use crate::store::key;
use crate::store::prepared::Prepared;

/// Charges, reads and resets a bucket of its own, to check that the server can run the script and keeps its
/// writes. No other instance uses the bucket's name, so none can interfere.
///
/// Three steps: a charge that empties the bucket, a peek that must find it empty, and a reset
/// that leaves nothing behind. A replica refuses the first, a server that loses writes fails the
/// second, and a user without the right to `EVALSHA` the third.
pub(in crate::store) fn probe(prefix: &str) -> Result<Probe, ConfigError> {
    let policy = Policy::gcra(format!("probe-{:016x}", random()), "1/10s").build()?;
    let prepared = Arc::new(Prepared::new(prefix, &policy, Inherit::Spent, 0, 0)?);
    let ask = KeyAsk::probe(key::name(prefix, policy.name(), key::PROBE), prepared);
    let mut probe = Probe::default();
    for (name, mode, outcome) in [
        (ScriptName::Text, Mode::Charge, Outcome::Allowed),
        (ScriptName::Text, Mode::Peek, Outcome::Denied),
        // By digest, like most calls, which needs another right.
        (ScriptName::Digest, Mode::Reset, Outcome::Allowed),
    ] {
        let asks = [ask.with_mode(mode)];
        let command = command(name, std::iter::once(&asks[..]), None, u64::MAX);
        probe.step(command, move |reply| {
            let disagreements = AtomicU64::new(0);
            let decision =
                ScriptReply::read(reply, &disagreements).and_then(|mut reply| reply.decision(&asks));
            expect(outcome, decision)
        });
    }
    Ok(probe)
}

fn expect(outcome: Outcome, said: Result<Decision, StoreError>) -> Result<(), String> {
    match said {
        Ok(decision) if decision.outcome() == outcome => Ok(()),
        Ok(_) => Err("the server does not find again what the script has written".to_owned()),
        Err(error) => Err(std::error::Error::source(&error).unwrap_or(&error).to_string()),
    }
}
