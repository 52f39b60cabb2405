//! A policy as the store prepares it: [`Prepared`].
//!
//! Preparing sends nothing. Redis learns a policy from its first decision, because each order
//! carries the text of the rules. So instances with different rules can share keys.
//!
//! # Rules as bytes
//! As numbers for each order to the script, and as the text of each value:
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

use std::ops::Range;
use std::sync::{Arc, Mutex};

use sluicegate_core::algorithm::{Numbers, Rule};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::{OwnQuotas, PreparedPolicy};
use sluicegate_core::support::lock;
use sluicegate_core::{ConfigError, Policy};

use super::decide::KINDS;
use super::key;

/// A prepared policy: the data that all its asks share.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The beginning of the names of its keys.
    pub(super) stem: String,
    /// See [`self::numbers`].
    pub(super) numbers: Vec<u8>,
    /// See [`self::text`].
    pub(super) text: Vec<u8>,
    pub(super) rules: Vec<Rule>,
    /// The number of the [`Inherit`](sluicegate_core::limiter::Inherit) for keys with states under other rules, in the script's numbering.
    pub(super) way: u8,
    /// The moment, in microseconds, before which spends are forgotten; 0 if the policy was never reset as a whole.
    pub(super) since_us: u64,
    /// The moment, in microseconds, as of which keys continue from states under other rules; 0 for that of their last change.
    pub(super) replaced_us: u64,
    pub(super) gives_back: bool,
    /// Whether spends are final: keys bring quotas of their own, and there is no account of refunds, so it is unknown by which quotas a
    /// spend has drained.
    pub(super) is_final: bool,
    /// Whether refused requests spend as well.
    pub(super) counts_rejected: bool,
    /// Whether its peeks write nothing.
    pub(super) is_onlooker: bool,
    /// Whether keys may bring quotas of their own.
    pub(super) takes_quotas: bool,
    /// Whether a quota has periods of a calendar. Redis knows only the borders around this moment, which are part of the numbers.
    pub(super) has_calendar: bool,
    /// The policy with the borders at these moments, in microseconds.
    pub(super) current: Mutex<Option<(Range<u64>, Arc<Self>)>>,
}

impl Prepared {
    pub(super) fn new(
        prefix: &str,
        policy: &Policy,
        inherit: Inherit,
        since_us: u64,
        replaced_us: u64,
    ) -> Result<Self, ConfigError> {
        self::check(policy)?;
        let rules = rules(policy);
        Ok(Self {
            stem: key::stem(prefix, policy.name()),
            numbers: self::numbers(&rules, 0, replaced_us),
            text: self::text(policy, &rules),
            has_calendar: has_calendar(policy),
            current: Mutex::default(),
            rules,
            way: match inherit {
                Inherit::Reset => 0,
                Inherit::AsIs => 1,
                Inherit::Proportional => 2,
                Inherit::Additive => 3,
                _ => 4,
            },
            since_us,
            replaced_us,
            gives_back: policy.gives_back(),
            is_final: policy.takes_quotas() && !policy.gives_back(),
            counts_rejected: policy.counts_rejected(),
            is_onlooker: false,
            takes_quotas: policy.takes_quotas(),
        })
    }

    /// This policy with the quotas that a key brings. Made once.
    ///
    /// # Errors
    /// When the script does not support the quotas.
    pub(super) fn under(&self, policy: &PreparedPolicy, own: &OwnQuotas) -> Result<Arc<Self>, ConfigError> {
        own.prepared(policy, || {
            self::check(own.policy())?;
            let rules = rules(own.policy());
            Ok(Self {
                stem: self.stem.clone(),
                numbers: self::numbers(&rules, 0, self.replaced_us),
                text: self::text(own.policy(), &rules),
                has_calendar: has_calendar(own.policy()),
                current: Mutex::default(),
                rules,
                ..*self
            })
        })
    }

    /// This policy at this moment, in microseconds: the borders change if a quota has periods of a calendar.
    pub(super) fn at(self: &Arc<Self>, now_us: impl Fn() -> u64) -> Arc<Self> {
        if !self.has_calendar {
            return Arc::clone(self);
        }
        let now_us = now_us();
        let mut current = lock(&self.current);
        match &*current {
            Some((moments, prepared)) if moments.contains(&now_us) => Arc::clone(prepared),
            _ => {
                let prepared = Arc::new(Self {
                    stem: self.stem.clone(),
                    numbers: self::numbers(&self.rules, now_us, self.replaced_us),
                    text: self.text.clone(),
                    rules: self.rules.clone(),
                    current: Mutex::default(),
                    ..**self
                });
                *current = Some((self.around(now_us), Arc::clone(&prepared)));
                prepared
            }
        }
    }

    /// The moments around this one at which all quotas are in the same periods.
    fn around(&self, now_us: u64) -> Range<u64> {
        let borders = self.rules.iter().flat_map(|rule| rule.borders(now_us));
        borders.fold(0..u64::MAX, |around, border_us| match border_us <= now_us {
            true => around.start.max(border_us)..around.end,
            false => around.start..around.end.min(border_us),
        })
    }
}

fn rules(policy: &Policy) -> Vec<Rule> {
    policy.quotas().iter().map(|quota| *quota.rule()).collect()
}

fn has_calendar(policy: &Policy) -> bool {
    policy.quotas().iter().any(|quota| quota.quota().calendar().is_some())
}

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
