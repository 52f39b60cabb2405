//! Changing a policy for a time: [`change`] and [`withdraw`].

use std::time::Duration;

use http::StatusCode;
use sluicegate_core::limiter::{OverrideError, OverrideErrorKind, Overrides};
use sluicegate_core::policy::{Override, TimeSpan};

use crate::fault::Fault;
use crate::input::Input;
use crate::scope::Scope;

/// A change that was made, in a sentence.
pub(crate) struct Changed {
    pub(crate) policy: String,
    pub(crate) notice: String,
}

/// Puts an override: other quotas, for an hour unless a time is given. One that stands is replaced by those who have seen it.
pub(crate) async fn change(scope: &Scope, operator: &str, input: &Input) -> Result<Changed, Fault> {
    let (policy, overrides) = policy_of(scope, input)?;
    let mut wanted = Override::builder(policy, operator);
    for quota in input.quota.iter().flat_map(|quotas| quotas.split(',')) {
        wanted = wanted.quota(quota.trim());
    }
    if let Some(span) = &input.span {
        let span: TimeSpan = span.parse().map_err(|error| Fault::bad(format!("{error}")))?;
        wanted = wanted.lasting(Duration::from(span));
    }
    if let Some(version) = input.version()? {
        wanted = wanted.replacing(version);
    }
    let put = overrides.put(wanted).await?;
    let where_ = if overrides.are_shared() { "on all instances" } else { "on this instance only" };
    Ok(Changed { policy: policy.to_owned(), notice: format!("{put}, {where_}") })
}

/// Ends an override, by those who have seen it.
pub(crate) async fn withdraw(scope: &Scope, operator: &str, input: &Input) -> Result<Changed, Fault> {
    let (policy, overrides) = policy_of(scope, input)?;
    let version =
        input.version()?.ok_or_else(|| Fault::bad("say by its version which override is withdrawn"))?;
    overrides.withdraw(policy, version, operator).await?;
    Ok(Changed { policy: policy.to_owned(), notice: format!("{policy}: the override is withdrawn") })
}

/// The policy that is meant, and the overrides of its store.
fn policy_of<'a>(scope: &'a Scope, input: &'a Input) -> Result<(&'a str, &'a Overrides), Fault> {
    let policy = input.policy.as_deref().ok_or_else(|| Fault::bad("no policy is named"))?;
    let overrides = scope.overrides_of(policy).ok_or_else(|| Fault::unknown(policy))?;
    Ok((policy, overrides))
}

impl From<OverrideError> for Fault {
    fn from(error: OverrideError) -> Self {
        let status = match error.kind() {
            OverrideErrorKind::Invalid => StatusCode::BAD_REQUEST,
            OverrideErrorKind::OutOfDate => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}
