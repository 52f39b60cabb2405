//! The reason why a request that may wait got no turn: [`AcquireError`].

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::{StoreError, write_chain};
use crate::decision::{Decision, Outcome};
use crate::policy::{Policy, PolicyQuota};
use crate::receipt::DecidedBy;

/// A request that may wait was not admitted: its turn would come too late, or never, or the store gave no answer. It has spent
/// nothing, except perhaps in a [store](StoreError::may_have_spent) that gave no answer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), sluicegate_core::ConfigError> {
/// use std::time::Duration;
/// use sluicegate_core::error::AcquireErrorKind;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let mail = Policy::leaky_queue("mail", "1/min burst 100").on(&MemoryStore::new())?;
/// mail.check("ada").acquire(Duration::from_secs(5)).await.expect("the first turn is now");
/// let error = mail.check("ada").acquire(Duration::from_secs(5)).await.unwrap_err();
/// assert_eq!(error.kind(), AcquireErrorKind::TooLate);
/// assert_eq!(error.to_string(), "policy \"mail\": a turn would come in 60 s, and the longest wait is 5 s");
/// # Ok(())
/// # }
/// ```
pub struct AcquireError(Reason);

enum Reason {
    /// `is_full` if the policy is a queue that is shorter than the longest wait.
    Refused {
        policy: String,
        decision: Box<Decision>,
        longest: Duration,
        is_full: bool,
    },
    Store(StoreError),
}

/// The reason why a request that may wait was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireErrorKind {
    /// The turn would come later than the longest wait, or the queue is full.
    TooLate,
    /// The cost is above the most that the policy ever passes at once; no wait helps.
    Impossible,
    /// The key is suspended.
    Suspended,
    /// The store gave no answer.
    Store,
}

impl AcquireError {
    pub(crate) fn refused(policy: &Policy, decision: Decision, longest: Duration) -> Self {
        let queues = policy.quotas().iter().map(PolicyQuota::rule).filter(|rule| rule.is_queue());
        let is_full =
            queues.map(|rule| rule.longest_spend_us()).any(|us| longest >= Duration::from_micros(us));
        let policy = policy.name().to_owned();
        Self(Reason::Refused { policy, decision: Box::new(decision), longest, is_full })
    }

    /// The reason.
    pub fn kind(&self) -> AcquireErrorKind {
        match &self.0 {
            Reason::Store(_) => AcquireErrorKind::Store,
            Reason::Refused { decision, .. } if decision.decided_by() == DecidedBy::Outage => {
                AcquireErrorKind::Store
            }
            Reason::Refused { decision, .. } => match decision.outcome() {
                Outcome::Impossible => AcquireErrorKind::Impossible,
                Outcome::Suspended => AcquireErrorKind::Suspended,
                Outcome::Allowed | Outcome::Denied => AcquireErrorKind::TooLate,
            },
        }
    }

    /// The decision that refuses; `None` if there is none, because the store was asked in vain.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.0 {
            Reason::Refused { decision, .. } => Some(decision),
            Reason::Store(_) => None,
        }
    }

    /// The shortest wait after which the same request could get a turn, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }

    /// The longest wait of the request; `None` if the store gave no answer.
    pub fn longest(&self) -> Option<Duration> {
        match &self.0 {
            Reason::Refused { longest, .. } => Some(*longest),
            Reason::Store(_) => None,
        }
    }
}

impl From<StoreError> for AcquireError {
    fn from(error: StoreError) -> Self {
        Self(Reason::Store(error))
    }
}

/// The message and its chain of sources, as a `main` that returns the error prints it.
impl fmt::Debug for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(self, f)
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason::Refused { policy, decision, longest, is_full } = &self.0 else {
            return f.write_str("no turn was reserved");
        };
        let wait = decision.retry_after().unwrap_or_default();
        write!(f, "policy {policy:?}: ")?;
        match self.kind() {
            AcquireErrorKind::Impossible => {
                write!(f, "the cost is above {}, the most that ever passes at once", decision.capacity())
            }
            AcquireErrorKind::Suspended => write!(f, "the key is suspended for another {}", shown(wait)),
            AcquireErrorKind::Store => {
                f.write_str("the store gives no answer, and the policy denies in an outage")
            }
            AcquireErrorKind::TooLate if *is_full => {
                write!(f, "the queue is full, and has room in {}", shown(wait))
            }
            AcquireErrorKind::TooLate => {
                let (turn, longest) = (shown(wait.saturating_add(*longest)), shown(*longest));
                write!(f, "a turn would come in {turn}, and the longest wait is {longest}")
            }
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Reason::Store(error) => Some(error),
            Reason::Refused { .. } => None,
        }
    }
}

/// A wait as people read it: whole seconds from one second on, rounded up.
fn shown(wait: Duration) -> String {
    match wait.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis => format!("{} s", millis.div_ceil(1_000)),
    }
}
