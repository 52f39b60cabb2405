//! What stands in a value, and in an order to the script: a policy's rules as bytes, and states as three numbers.

use std::time::Duration;

use sluicegate_core::algorithm::{Rule, State};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::{ConfigError, Policy};

/// The highest limit of a sliding log: with more entries, one call takes longer than some 100 microseconds, in which
/// Redis serves nobody else.
const LONGEST_LOG: u64 = 2_000;

/// Two counts of 31 bits stand in the second word of a sliding counter's state.
const COUNT_BITS: u32 = 31;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// Set in the second word of a state when a turn was given out ahead.
const CLOSED: u64 = 1 << 63;

/// What the script adds to a sliding counter's current count for that.
const CLOSED_COUNT: u64 = 1 << 32;

/// All that decides: the version, and per quota its kind, its id, and the numbers of its rule. Instances with the same text
/// share their states; others keep their own, and charge each other.
pub(crate) fn rules(policy: &Policy) -> Result<Vec<u8>, ConfigError> {
    let mut text = Vec::with_capacity(9 + 53 * policy.quotas().len());
    push(&mut text, policy.version().unwrap_or(0));
    text.push(u8::try_from(policy.quotas().len()).unwrap_or(u8::MAX));
    for quota in policy.quotas() {
        let (kind, numbers) = numbers(policy, quota)?;
        text.push(kind);
        text.extend_from_slice(&id(quota).to_le_bytes());
        for number in numbers {
            #[expect(
                clippy::cast_precision_loss,
                reason = "rules are made of numbers that are exact in a double"
            )]
            text.extend_from_slice(&(number as f64).to_le_bytes());
        }
    }
    Ok(text)
}

/// Adds a number as the script reads it.
pub(crate) fn push(bytes: &mut Vec<u8>, number: u64) {
    #[expect(clippy::cast_precision_loss, reason = "what is above 2^53 only has to stay above")]
    bytes.extend_from_slice(&(number as f64).to_le_bytes());
}

/// Whole microseconds.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// What stands for a quota's id; 0 if it has none.
fn id(quota: &PolicyQuota) -> u32 {
    quota.id().map_or(0, |id| {
        let hash = blake3::hash(id.as_bytes());
        let mut start = [0; 4];
        start.copy_from_slice(&hash.as_bytes()[..4]);
        u32::from_le_bytes(start).max(1)
    })
}

/// The kind of a rule and its numbers.
fn numbers(policy: &Policy, quota: &PolicyQuota) -> Result<(u8, [i64; 6]), ConfigError> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let refused = |problem: String| {
        ConfigError::new(ConfigErrorKind::Store, format!("policy {:?}: {problem}", policy.name()))
    };
    Ok(match quota.rule() {
        Rule::Gcra(rule) => (
            1,
            [
                number(rule.unit_us().get()),
                number(rule.ticks().get()),
                number(rule.spacing().get()),
                number(rule.burst()),
                number(rule.ceiling()),
                if rule.undelayed() == u64::MAX { -1 } else { number(rule.undelayed()) },
            ],
        ),
        Rule::FixedWindow(rule) => (
            2,
            [
                number(rule.limit().get()),
                number(rule.period_us().get()),
                number(rule.burst()),
                number(rule.ceiling()),
                i64::from(rule.is_aligned()),
                0,
            ],
        ),
        Rule::SlidingCounter(rule) => (
            3,
            [
                number(rule.limit()),
                number(rule.period_us().get()),
                number(rule.unit_us().get()),
                number(rule.ceiling()),
                0,
                0,
            ],
        ),
        Rule::SlidingLog(rule) if rule.limit() > LONGEST_LOG => {
            return Err(refused(format!(
                "a sliding log on Redis has a limit of at most {LONGEST_LOG}, not {}, because its value is written whole with every decision: use a sliding counter",
                rule.limit()
            )));
        }
        Rule::SlidingLog(rule) => {
            (4, [number(rule.limit()), number(rule.period_us().get()), number(rule.ceiling()), 0, 0, 0])
        }
        other => return Err(refused(format!("the Redis store does not know the rule {other:?}"))),
    })
}

/// A state as the script writes it.
pub(crate) fn packed(rule: &Rule, state: State) -> [u64; 3] {
    let (count, is_closed) = (state.aux & !CLOSED, u64::from(state.aux & CLOSED != 0));
    match rule {
        Rule::SlidingCounter(_) => {
            [state.until_us, count >> COUNT_BITS, (count & COUNT_MAX) + is_closed * CLOSED_COUNT]
        }
        Rule::FixedWindow(_) => [state.until_us, count, is_closed],
        _ => [state.until_us, state.aux, 0],
    }
}

/// A state as the script wrote it.
pub(crate) fn unpacked(rule: &Rule, [till, a, b]: [u64; 3]) -> State {
    let closed = |is_closed: bool| if is_closed { CLOSED } else { 0 };
    match rule {
        Rule::SlidingCounter(_) => {
            let counts = ((a & COUNT_MAX) << COUNT_BITS) | (b & COUNT_MAX);
            State::new(till, counts | closed(b >= CLOSED_COUNT))
        }
        Rule::FixedWindow(_) => State::new(till, a | closed(b > 0)),
        // The moment of the entry.
        Rule::SlidingLog(_) => State::new(till, 0),
        _ => State::new(till, a),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Algorithm;

    use super::*;

    #[test]
    fn a_state_is_the_same_after_a_way_to_redis_and_back() {
        for algorithm in [
            Algorithm::Gcra,
            Algorithm::SlidingCounter,
            Algorithm::FixedWindow(sluicegate_core::algorithm::Anchor::Epoch),
        ] {
            let policy = Policy::builder("policy", algorithm, "7/min").build().unwrap();
            let rule = policy.quotas()[0].rule();
            for at in [1_000_000_000, 1_000_000_000 + 61_000_000] {
                let state = rule.spend(State::REST, 1_000_000_000, at, 3);
                assert_eq!(unpacked(rule, packed(rule, state)), state, "{algorithm}");
            }
        }
    }

    #[test]
    fn a_log_that_is_too_long_for_redis_is_refused_with_what_to_use() {
        let policy = Policy::sliding_log("long", "2001/d").build().unwrap();
        let message = rules(&policy).unwrap_err().to_string();
        assert!(
            message.contains("at most 2000, not 2001") && message.contains("use a sliding counter"),
            "{message}"
        );
    }
}
