//! Acting on a key: [`act_on_key`].
//!
//! The answer is the key's status afterwards, from a separate peek. In a flood it may differ from the state right after the action, and
//! the operator needs the current state.

use std::fmt;

use sluicegate_core::policy::Quotas;
use sluicegate_core::{Key, RateLimiter};

use super::fault::ActionFault;
use super::input::Input;
use super::target::LookupTarget;
use crate::document::{LookedUp, by_key, usual_span};
use crate::scope::Scope;
use crate::secret::Secret;

/// An action on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    /// Makes its buckets of one policy full again.
    Reset,
    /// Refuses it outright, for a time.
    Suspend,
    /// Ends its suspension, and forgets its refusals.
    Release,
}

/// Does the action, and returns the status of the key after it.
pub(super) async fn act_on_key(
    scope: &Scope,
    secret: &Secret,
    (action, operator): (KeyAction, &str),
    input: &Input,
) -> Result<LookedUp, ActionFault> {
    let (limiter, key) = one(LookupTarget::of(scope, secret, input).await?, input.policy.as_deref(), scope)?;
    let policy = limiter.policy();
    match action {
        KeyAction::Reset => {
            let reset = limiter.reset(&key).await?;
            tracing::info!(target: "sluicegate::audit", by = operator, policy = policy.name(), key = key.shown(), "{action}");
            reset
        }
        KeyAction::Suspend => {
            let lasts = input.span()?.unwrap_or_else(|| usual_span(&policy));
            limiter.suspensions().by(operator).suspend(&key, lasts).await?
        }
        KeyAction::Release => limiter.suspensions().by(operator).release(&key).await?,
    };
    Ok(by_key(secret, &limiter, &key).await?)
}

/// The key of the named policy, among those that a request would meet.
pub(super) fn one(
    target: LookupTarget,
    policy: Option<&str>,
    scope: &Scope,
) -> Result<(RateLimiter, Key), ActionFault> {
    let explained = match target {
        LookupTarget::Key(limiter, key, _) => return Ok((limiter, key)),
        LookupTarget::Request(explained) => explained,
    };
    let mut asked = explained.limits.into_iter().filter_map(|limit| limit.asks.ok());
    let found = asked.find(|asked| policy == Some(asked.policy.name()));
    let found = found.and_then(|asked| {
        let limiter = scope.limiter(asked.policy.name())?;
        // The quotas that the request brings are those of its key.
        let own =
            (limiter.policy() != asked.policy).then(|| limiter.with_quotas(Quotas::of(&asked.policy)).ok());
        Some((own.flatten().unwrap_or(limiter), asked.key))
    });
    found.ok_or_else(|| match policy {
        Some(policy) => ActionFault::bad(format!("the request does not meet policy {policy:?}")),
        None => ActionFault::bad("say by policy which of the request's keys is meant"),
    })
}

impl fmt::Display for KeyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "the key is reset",
            Self::Suspend => "the key is suspended",
            Self::Release => "the key is released",
        })
    }
}
