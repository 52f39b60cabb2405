//! Whether limits can be decided together.
//!
//! Checks all data that is known when the layer is made, so that a mistake stops the program at its
//! start. The combination of limits may depend on the request, so the rest is checked per request; the
//! two checks are the same functions.

use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::{ConfigError, Policy, RateLimiter};
use smallvec::SmallVec;
use std::slice;
use std::sync::Arc;

use crate::key::text::config_error;
use crate::limits::group::Group;
use crate::limits::limit::Limit;

/// Checks all that is known before any request: the stores of all limits, and the policies of limits that apply to every
/// request.
pub(super) fn before_requests(group: &Group) -> Result<(), ConfigError> {
    let mut stores = group.limits().map(|limit| (limit, limit.source.store()));
    if let Some((first, store)) = stores.next()
        && let Some((other, _)) = stores.find(|(_, other)| !Arc::ptr_eq(store, other))
    {
        return fail(format!(
            "policies {:?} and {:?} are on different stores, so they cannot be decided together: put them on one store, or into two layers",
            first.title(),
            other.title(),
        ));
    }
    // Bodies pass bandwidth limits one after the other, and two directions may share a policy.
    let certain = || group.certain().filter(|limit| limit.bandwidth.is_none());
    distinct(certain().map(|limit| limit.source.known()))?;
    let most = |limit: &Limit| limit.source.known().iter().map(quotas).max();
    few_quotas("layer", certain().filter_map(most).sum())
}

/// Logs a warning if clients can invent all keys, and so choose their own buckets.
pub(super) fn warn_of_invented_keys(group: &Group) {
    let mut limits = group.limits().filter(|limit| !limit.is_off()).peekable();
    let Some(policy) = limits.peek().map(|limit| limit.title()) else { return };
    if limits.all(|limit| limit.key.is_invented()) {
        tracing::warn!(
            policy,
            "a client that makes up API keys, tokens or header values gets a new bucket for each, and nothing else limits it here: add a limit on the address, as in `.and(Limit::new(..))`; or say that keys are verified, by `.verified_by(..)` or `.verified_before()` on the key"
        );
    }
}

/// Checks the limiters of one request, because the combination of limits may depend on the request.
pub(super) fn of_request<'a>(
    limiters: impl Iterator<Item = &'a RateLimiter> + Clone,
) -> Result<(), ConfigError> {
    distinct(limiters.clone().map(slice::from_ref))?;
    few_quotas("request", limiters.map(quotas).sum())
}

/// Checks that no policy is in two limits. Each item has the limiters of one limit; a request asks one of them.
fn distinct<'a>(limits: impl Iterator<Item = &'a [RateLimiter]>) -> Result<(), ConfigError> {
    let mut earlier = SmallVec::<[&[RateLimiter]; 4]>::new();
    for limiters in limits {
        let is_earlier =
            |limiter: &&RateLimiter| earlier.iter().copied().flatten().any(|other| other.is(limiter));
        if let Some(limiter) = limiters.iter().find(is_earlier) {
            return fail(format!(
                "policy {:?} is there twice: a request would spend from it twice, and headers could not tell which is which; for a second key, give the second limit a policy with a name of its own",
                limiter.policy().name(),
            ));
        }
        earlier.push(limiters);
    }
    Ok(())
}

fn few_quotas(of_one: &str, quotas: usize) -> Result<(), ConfigError> {
    match quotas > MAX_QUOTAS {
        true => {
            fail(format!("the limits of one {of_one} have {quotas} quotas, and at most {MAX_QUOTAS} fit"))
        }
        false => Ok(()),
    }
}

fn quotas(limiter: &RateLimiter) -> usize {
    limiter.with_policy(Policy::buckets)
}

fn fail(problem: String) -> Result<(), ConfigError> {
    Err(config_error(problem))
}
