//! What fields say of policies, whatever is decided.

use std::sync::Arc;

use http::HeaderValue;
use sluicegate_core::Policy;
use sluicegate_core::policy::PolicyQuota;

use crate::respond::headers::lines::{number, policy_line};

/// What can be written of a request's policies before it is decided.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// One per ask.
    pub(crate) policies: Arc<[Arc<Policy>]>,
    /// `RateLimit-Policy` of all of them; `None` if all are hidden.
    pub(super) policy_line: Option<HeaderValue>,
    /// `X-RateLimit-Limit` of each quota of each policy.
    pub(crate) limits: Box<[Box<[HeaderValue]>]>,
}

impl Prepared {
    pub(crate) fn new(policies: Arc<[Arc<Policy>]>) -> Self {
        let limit = |quota: &PolicyQuota| number(quota.rule().capacity());
        let limits = policies.iter().map(|policy| policy.quotas().iter().map(limit).collect()).collect();
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        let policy_line = policy_line(shown.flat_map(|policy| policy.quotas()));
        Self { policy_line, limits, policies }
    }
}
