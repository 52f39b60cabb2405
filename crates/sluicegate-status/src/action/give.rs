//! Giving quotas to one key for a time: [`give`].
//!
//! It is an override of the key alone, with a version of its own, and is withdrawn as one of a policy is.

use sluicegate_core::policy::Override;

use super::fault::ActionFault;
use super::input::Input;
use super::key::one;
use super::policy::{until_us, whose};
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
    let quotas =
        input.quota.as_deref().ok_or_else(|| ActionFault::bad("say which quotas the key is to have"))?;
    let mut wanted = Override::builder(policy, operator).key(key.clone());
    for quota in quotas.split(',') {
        wanted = wanted.quota(quota.trim());
    }
    if let Some(span) = input.span()? {
        wanted = wanted.lasting(span);
    }
    if let Some(until) = &input.until {
        wanted = wanted.until_us(until_us(until)?);
    }
    if let Some(version) = input.version()? {
        wanted = wanted.replacing(version);
    }
    let put = overrides.put(wanted).await?;
    Ok((format!("{put}, {}", whose(overrides)), by_key(secret, &limiter, &key).await?))
}
