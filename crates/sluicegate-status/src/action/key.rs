//! Acting on a key: [`act_on_key`].

use sluicegate_core::{Key, RateLimiter};

use super::look_up::{LookedUp, by_key};
use super::target::Target;
use crate::access::Secret;
use crate::fault::Fault;
use crate::input::Input;
use crate::scope::Scope;

/// What is done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    /// Its buckets of one policy are full again.
    Reset,
}

/// Does it, and says where the key stands then.
pub(crate) async fn act_on_key(
    scope: &Scope,
    secret: &Secret,
    (action, operator): (KeyAction, &str),
    input: &Input,
) -> Result<LookedUp, Fault> {
    let (limiter, key) = one(Target::of(scope, secret, input).await?, input.policy.as_deref(), scope)?;
    match action {
        KeyAction::Reset => limiter.reset(&key).await?,
    };
    let policy = limiter.policy();
    tracing::info!(target: "sluicegate::audit", by = operator, policy = policy.name(), key = key.shown(), "{action}");
    by_key(secret, &limiter, &key).await
}

/// The key of the policy that is named, among those that a request would meet.
fn one(target: Target, policy: Option<&str>, scope: &Scope) -> Result<(RateLimiter, Key), Fault> {
    let explained = match target {
        Target::Key(limiter, key) => return Ok((limiter, key)),
        Target::Request(explained) => explained,
    };
    let mut asked = explained.limits.into_iter().filter_map(|limit| limit.asks.ok());
    let found = asked.find(|asked| policy == Some(asked.policy.name()));
    let found = found.and_then(|asked| Some((scope.limiter(asked.policy.name())?, asked.key)));
    found.ok_or_else(|| match policy {
        Some(policy) => Fault::bad(format!("the request does not meet policy {policy:?}")),
        None => Fault::bad("say by policy which of the request's keys is meant"),
    })
}

impl std::fmt::Display for KeyAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reset => "the key is reset",
        })
    }
}
