//! Giving quotas to one key for a time: [`give`].
//!
//! It is an override for only that key, with a version of its own, and is withdrawn like an override of a policy.

use sluicegate_core::policy::Override;

use super::fault::ActionFault;
use super::input::Input;
use super::key::one;
use super::policy::{as_written, whose};
use super::target::LookupTarget;
use crate::document::{LookedUp, by_key};
use crate::scope::Scope;
use crate::secret::Secret;

/// Puts the override: for an hour unless a time is given. Returns a sentence about it, and the status of the key under it.
pub(super) async fn give(
    scope: &Scope,
    secret: &Secret,
    operator: &str,
    input: &Input,
) -> Result<(String, LookedUp), ActionFault> {
    let target = LookupTarget::of(scope, secret, input).await?;
    let (limiter, key) = one(target, input.policy.as_deref(), scope)?;
    let policy = limiter.policy().name().to_owned();
    let (limiter, overrides) = scope
        .limiter(&policy)
        .zip(scope.overrides_of(&policy))
        .ok_or_else(|| ActionFault::unknown(&policy))?;
    if input.quota.is_none() {
        return Err(ActionFault::bad("say which quotas the key is to have"));
    }
    let mut wanted = as_written(Override::builder(policy, operator).key(key.clone()), input)?;
    if let Some(version) = input.version()? {
        wanted = wanted.replacing(version);
    }
    let put = overrides.put(wanted).await?;
    Ok((format!("{put}, {}", whose(overrides)), by_key(secret, &limiter, &key).await?))
}
