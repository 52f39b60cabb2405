//! The reason why something was not done: [`ActionFault`].
//!
//! It has a status and a sentence. The sentence is for the operator who sees it on the page, and says what to do.

use std::fmt;

use http::StatusCode;
use sluicegate_core::StoreError;
use sluicegate_tower::room::RoomError;

/// The reason why nothing was done. It names policies and fields, and shows no key.
#[derive(Debug)]
pub(crate) struct ActionFault {
    pub(crate) status: StatusCode,
    problem: String,
}

impl ActionFault {
    pub(crate) fn new(status: StatusCode, problem: impl Into<String>) -> Self {
        Self { status, problem: problem.into() }
    }

    pub(super) fn bad(problem: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, problem)
    }

    pub(super) fn unknown(policy: &str) -> Self {
        Self::bad(format!("no policy named {policy:?} is open here"))
    }
}

impl From<StoreError> for ActionFault {
    fn from(error: StoreError) -> Self {
        let is_outage = error.may_succeed_later();
        let status = if is_outage { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_REQUEST };
        Self::new(status, error.to_string())
    }
}

impl From<RoomError> for ActionFault {
    fn from(error: RoomError) -> Self {
        match error {
            RoomError::Store(error) => error.into(),
            error => Self::bad(error.to_string()),
        }
    }
}

impl fmt::Display for ActionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}
