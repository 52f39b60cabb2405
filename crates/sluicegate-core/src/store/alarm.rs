//! An alarm about unusual requests of a policy: [`Alarm`].

use std::fmt;

use crate::listed::listed;

/// Unusual requests of a policy, as a store that [observes](crate::store::Event::Alarm) them has detected.
///
/// Its text states the unusual number and the usual range:
///
/// ```
/// use sluicegate_core::store::{Alarm, AlarmCause};
///
/// let mut alarm = Alarm::of("login", AlarmCause::NewKeys);
/// (alarm.a_minute, alarm.usual, alarm.share) = (512, (14, 31), 0.94);
/// assert_eq!(alarm.to_string(), "new keys of login a minute: 512, usually 14 to 31; they make 94 % of its requests");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Alarm {
    /// The name of the policy.
    pub policy: String,
    /// The number that is unusual.
    pub cause: AlarmCause,
    /// When it was noticed, in microseconds by the clock of the store.
    pub since_us: u64,
    /// The unusual number, for one minute.
    pub a_minute: u64,
    /// The standard error of [`a_minute`](Self::a_minute), if it is an estimate.
    pub error: u64,
    /// The lowest and the highest usual number for one minute.
    pub usual: (u64, u64),
    /// The share of the policy's requests, 0 to 1.
    pub share: f64,
    /// The networks with the largest shares: /24 and /48, each with its share of the policy's requests, the largest first. Only for
    /// keys that are addresses.
    pub networks: Vec<(String, f64)>,
    /// The reason why such requests are expected, if they are; then there is no warning.
    pub expected: Option<String>,
    /// Whether it is over.
    pub is_over: bool,
}

/// The number that is unusual about the requests of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AlarmCause {
    /// More requests.
    Requests,
    /// More refusals.
    Refusals,
    /// More keys that were never seen before.
    NewKeys,
    /// More requests of the busiest one in a hundred keys.
    BusiestKeys,
    /// More requests of the busiest network.
    BusiestNetwork,
}

listed!(AlarmCause, "All causes, in their order.", "The word for the cause, in metrics and logs.":
    Requests => "requests", Refusals => "refusals", NewKeys => "new_keys", BusiestKeys => "busiest_keys",
    BusiestNetwork => "busiest_network");

impl AlarmCause {
    fn counted(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Refusals => "refusals",
            Self::NewKeys => "new keys",
            Self::BusiestKeys => "requests of the busiest 1 % of keys",
            Self::BusiestNetwork => "requests of the busiest network",
        }
    }
}

impl Alarm {
    /// An alarm about a policy, without numbers.
    pub fn of(policy: impl Into<String>, cause: AlarmCause) -> Self {
        Self {
            policy: policy.into(),
            cause,
            since_us: 0,
            a_minute: 0,
            error: 0,
            usual: (0, 0),
            share: 0.0,
            networks: Vec::new(),
            expected: None,
            is_over: false,
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, cause, a_minute, error, usual: (least, most), .. } = self;
        if let Some(why) = &self.expected {
            write!(f, "expected, {why}: ")?;
        }
        if self.is_over {
            f.write_str("no longer unusual: ")?;
        }
        write!(f, "{} of {policy} a minute: {a_minute}", cause.counted())?;
        if *error > 0 {
            write!(f, " (± {error})")?;
        }
        write!(f, ", usually {least} to {most}")?;
        if self.is_over {
            return Ok(());
        }
        if *cause != AlarmCause::Requests {
            write!(f, "; they make {:.0} % of its requests", self.share * 100.0)?;
        }
        for (place, (network, share)) in self.networks.iter().enumerate() {
            let separator = if place == 0 { "; from " } else { ", " };
            write!(f, "{separator}{network} ({:.0} %)", share * 100.0)?;
        }
        Ok(())
    }
}
