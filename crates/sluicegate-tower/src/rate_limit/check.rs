//! Whether the limits of a layer go together.

use std::sync::Arc;

use sluicegate_core::RateLimiter;
use sluicegate_core::policy::MAX_QUOTAS;

use crate::limits::limit::Limit;

/// What keeps the limits from being decided together, if anything does.
pub(crate) fn check(limits: &[Limit]) -> Result<(), String> {
    let limiters: Vec<&RateLimiter> = limits.iter().flat_map(Limit::limiters).collect();
    let policies: Vec<_> = limiters.iter().map(|limiter| limiter.policy()).collect();
    let names = || policies.iter().map(|policy| policy.name());
    for (index, name) in names().enumerate() {
        if !Arc::ptr_eq(limiters[index].store(), limiters[0].store()) {
            return Err(format!(
                "policies {:?} and {name:?} are on different stores, so they cannot be decided together: put them on one store, or into two layers",
                policies[0].name(),
            ));
        }
        if names().take(index).any(|earlier| earlier == name) {
            return Err(format!(
                "policy {name:?} is there twice: a request would spend from it twice, and headers could not tell which is which; for a second key, give the second limit a policy with a name of its own"
            ));
        }
    }
    let most = |limit: &Limit| limit.limiters().iter().map(|one| one.policy().quotas().len()).max();
    let quotas: usize = limits.iter().filter_map(most).sum();
    if quotas > MAX_QUOTAS {
        return Err(format!("the limits of one layer have {quotas} quotas, and at most {MAX_QUOTAS} fit"));
    }
    Ok(())
}
