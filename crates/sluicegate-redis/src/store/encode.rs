//! A policy's rules as bytes: as numbers for each order to the script, and as the text of each value.
//!
//! ```text
//! numbers, per quota 49 bytes:
//!   u8    kind: 1 GCRA, 2 fixed window, 3 sliding counter, 4 sliding log, 5 window of a calendar; +128 if newcomers lack units of a burst
//!   6 f64 numbers of the rule, as `Numbers` has them; -1 for one that is never reached
//! then, per quota of a calendar:
//!   f64   the number of the calendar
//!   f64   number of borders
//!   f64   per border its moment
//! last:
//!   f64   the moment at which the policy replaced another one here; 0 if it has not
//! text:
//!   u8    number of quotas; +128 if the policy has a version, which follows as f64
//!   per quota:
//!     u8  kind; +8 for each byte of the last number; +64 if the quota has an id
//!     u16 bytes of each other number, as five octal digits, the first one lowest
//!     the numbers of the rule plus one; nothing for one that is never reached
//!     u32 hash of the quota's id, if it has one
//! ```
//!
//! All numbers are little endian. Lua's only numbers are doubles, so integers are sent as doubles, in which every integer below 2^53 is
//! exact. Texts are compared byte by byte, to find the states of a value under the same rules.

use sluicegate_core::algorithm::{Numbers, Rule};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::{ConfigError, Policy};

use crate::store::decide::KINDS;

/// The most entries of a sliding log: with more entries, one call takes longer than about 100 microseconds, in which
/// Redis serves no other client.
const LONGEST_LOG: u64 = 2_000;

/// Added to the kind of a rule under which newcomers lack units of a burst.
const NEWCOMERS: u8 = 128;

/// Added to the kind of a rule whose quota has an id.
const NAMED: u8 = 64;

/// Added to the number of quotas of a policy that has a version.
const VERSIONED: u8 = 128;

/// The numbers of the rules at this moment, in microseconds. The script reads the numbers of one quota at a time.
pub(super) fn numbers(rules: &[Rule], now_us: u64, replaced_us: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(49 * rules.len());
    for numbers in rules.iter().map(Rule::numbers) {
        bytes.push(kind(&numbers));
        for number in numbers.all() {
            match number {
                Numbers::NONE => bytes.extend_from_slice(&(-1.0_f64).to_le_bytes()),
                number => push(&mut bytes, number),
            }
        }
    }
    for (rule, borders) in rules.iter().map(|rule| (rule, rule.borders(now_us))) {
        if let (false, [.., calendar, _]) = (borders.is_empty(), rule.numbers().all()) {
            push(&mut bytes, calendar);
            push(&mut bytes, borders.len() as u64);
            borders.into_iter().for_each(|border| push(&mut bytes, border));
        }
    }
    push(&mut bytes, replaced_us);
    bytes
}

/// Everything that affects decisions: the version, and per quota its kind, its id, and the numbers of its rule. Instances with
/// the same text share states; others have separate states, and charge each other's states.
pub(super) fn text(policy: &Policy, rules: &[Rule]) -> Vec<u8> {
    let version = policy.version().unwrap_or(0);
    let mut text =
        vec![u8::try_from(rules.len()).unwrap_or(u8::MAX) | if version > 0 { VERSIONED } else { 0 }];
    if version > 0 {
        push(&mut text, version);
    }
    for (quota, rule) in policy.quotas().iter().zip(rules) {
        let (numbers, id) = (rule.numbers(), id(quota));
        // A level that is never reached is the highest of all. A number above 2^53 only has to stay above it.
        let stored = numbers.all().map(|number| number.wrapping_add(1).min(1 << 53));
        let sizes = stored.map(|number| (u64::BITS - number.leading_zeros()).div_ceil(8));
        let [others @ .., last] = sizes;
        let [low, high, ..] = others.iter().rev().fold(0, |all, size| all * 8 + size).to_le_bytes();
        let last = u8::try_from(last * 8).unwrap_or(u8::MAX);
        text.extend_from_slice(&[kind(&numbers) | last | if id > 0 { NAMED } else { 0 }, low, high]);
        for (number, size) in stored.iter().zip(sizes) {
            text.extend(number.to_le_bytes().into_iter().take(size as usize));
        }
        if id > 0 {
            text.extend_from_slice(&id.to_le_bytes());
        }
    }
    text
}

fn kind(numbers: &Numbers) -> u8 {
    numbers.kind() + if numbers.starts_short() { NEWCOMERS } else { 0 }
}

/// The highest number that the script can tell from the next one: `NEVER` there.
const MOST: u64 = (1 << 53) - 1;

/// Adds a number in the form that the script reads. All numbers of policies and asks pass through here: a higher one, which no state
/// reaches, becomes the highest.
pub(super) fn push(bytes: &mut Vec<u8>, number: u64) {
    #[expect(clippy::cast_precision_loss, reason = "all numbers up to 2^53 are exact")]
    bytes.extend_from_slice(&(number.min(MOST) as f64).to_le_bytes());
}

/// A number for a quota's id; 0 if it has none.
fn id(quota: &PolicyQuota) -> u32 {
    quota.id().map_or(0, |id| {
        let hash = blake3::hash(id.as_bytes());
        let mut start = [0; 4];
        start.copy_from_slice(&hash.as_bytes()[..4]);
        u32::from_le_bytes(start).max(1)
    })
}

/// Checks that the script supports the policy.
///
/// # Errors
/// When it does not.
pub(super) fn check(policy: &Policy) -> Result<(), ConfigError> {
    let refused = |problem: String| {
        Err(ConfigError::new(ConfigErrorKind::Store, format!("policy {:?}: {problem}", policy.name())))
    };
    if let Some(version) = policy.version().filter(|version| *version > MOST) {
        return refused(format!("its version is {version}, and Redis tells versions apart up to {MOST}"));
    }
    for rule in policy.quotas().iter().map(PolicyQuota::rule) {
        if let Some(log) = rule.log().filter(|log| log.most_entries() > LONGEST_LOG) {
            return refused(format!(
                "a sliding log on Redis has at most {LONGEST_LOG} entries, not {}, because its value is written whole with every decision: give it a resolution, or use a sliding counter",
                log.most_entries()
            ));
        }
        if usize::from(rule.numbers().kind()) > KINDS {
            return refused(format!("the Redis store does not know the rule {rule:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_too_long_for_redis_is_refused_with_what_to_use() {
        let policy = Policy::sliding_log("long", "2001/d").build().unwrap();
        let message = check(&policy).unwrap_err().to_string();
        assert!(
            message.contains("at most 2000 entries, not 2001") && message.contains("give it a resolution"),
            "{message}"
        );
        let policy = Policy::sliding_log("long", "2001/d").resolution(1_000).build().unwrap();
        assert!(check(&policy).is_ok());
    }

    #[test]
    fn a_version_that_a_double_does_not_tell_from_the_next_is_refused() {
        let versioned = |version| check(&Policy::gcra("any", "5/s").version(version).build().unwrap());
        assert!(versioned(MOST).is_ok());
        for version in [MOST + 1, u64::MAX] {
            let message = versioned(version).unwrap_err().to_string();
            assert!(
                message.contains(&version.to_string()) && message.contains(&MOST.to_string()),
                "{message}"
            );
        }
    }
}
