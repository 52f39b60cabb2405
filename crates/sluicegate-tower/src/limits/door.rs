//! Decides which requests skip the limits.
//!
//! First come all conditions that are known at once, then conditions that have to be looked up, then the
//! denials: an exempt request is never denied.

use http::StatusCode;

use crate::key::RequestView;
use crate::key::extraction::Purpose;
use crate::limits::of_request::PendingValue;
use crate::limits::predicate::Predicate;

/// A question with an answer that may have to be waited for.
pub(crate) type LaterPredicate = Box<dyn Fn(RequestView<'_>) -> ExemptionFuture + Send + Sync>;

/// A pending answer.
pub(crate) type ExemptionFuture = PendingValue<bool>;

/// Returns the status with which a request is denied, if it is.
pub(crate) type DenyRule = Box<dyn Fn(RequestView<'_>) -> Option<StatusCode> + Send + Sync>;

/// The conditions under which requests skip the limits or are refused before them.
#[derive(Default)]
pub(crate) struct FrontDoor {
    pub(crate) exempt: Vec<Predicate>,
    pub(crate) exempt_later: Vec<LaterPredicate>,
    pub(crate) deny: Vec<DenyRule>,
}

/// The door's treatment of a request.
pub(crate) enum DoorVerdict {
    ToTheLimits,
    PastTheLimits,
    Refused(StatusCode),
    /// Not known yet: the answer is true if the request is exempt.
    Asking(ExemptionFuture),
}

impl FrontDoor {
    #[inline]
    pub(crate) fn entry(&self, request: RequestView<'_>) -> DoorVerdict {
        let asked = request.asked_for(Purpose::Exempt);
        if self.exempt.iter().any(|holds| holds(asked)) {
            return DoorVerdict::PastTheLimits;
        }
        if self.exempt_later.is_empty() {
            return self.entry_of(false, request);
        }
        let answers: Vec<_> = self.exempt_later.iter().map(|holds| holds(asked)).collect();
        DoorVerdict::Asking(Box::pin(async move {
            for answer in answers {
                if answer.await {
                    return true;
                }
            }
            false
        }))
    }

    /// The treatment of a request once it is known whether it is exempt.
    pub(crate) fn entry_of(&self, is_exempt: bool, request: RequestView<'_>) -> DoorVerdict {
        if is_exempt {
            return DoorVerdict::PastTheLimits;
        }
        let asked = request.asked_for(Purpose::Deny);
        let denied = self.deny.iter().find_map(|denial| denial(asked));
        denied.map_or(DoorVerdict::ToTheLimits, DoorVerdict::Refused)
    }
}
