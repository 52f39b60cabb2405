//! Changing policies for a time: [`change`], [`all_to_shadow`] and [`withdraw`].
//!
//! A change is an override in the store. It has a version, and an operator who replaces or withdraws an override sends the version that they
//! have seen: if two operators act at the same time, the second learns of the first one's change.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;
use sluicegate_core::limiter::{OverrideError, OverrideErrorKind, Overrides};
use sluicegate_core::policy::{Override, OverrideBuilder, PolicyMode};
use sluicegate_core::{ConfigError, RateLimiter, Store};

use crate::action::input::{ActionFault, Input};
use crate::document::{RoomChanged, seen};
use crate::page;
use crate::page::Scope;

/// A change that was made, in a sentence.
pub(crate) struct Changed {
    /// The policies that were changed, for an answer that shows them.
    pub(crate) policies: Vec<String>,
    /// The sentence.
    pub(crate) notice: String,
}

/// Puts an override: other quotas or another mode, for an hour unless a time is given. It replaces an existing override only if the operator has
/// seen that override.
pub(super) async fn change(scope: &Scope, operator: &str, input: &Input) -> Result<Changed, ActionFault> {
    let (policy, overrides) = policy_of(scope, input)?;
    let mut wanted = Override::builder(policy, operator);
    if let Some(mode) = &input.mode {
        wanted = wanted.mode(mode.parse().map_err(|error: ConfigError| ActionFault::bad(error.to_string()))?);
    }
    wanted = match input.keys.as_deref() {
        None | Some("all") => wanted,
        Some("new") => wanted.new_keys(),
        Some(_) => return Err(ActionFault::bad("say \"new\" or \"all\" of the keys that it is for")),
    };
    wanted = as_written(wanted, input)?;
    if let Some(version) = input.version()? {
        wanted = as_it_is(wanted.replacing(version), input, overrides, (policy, version)).await?;
    }
    let put = overrides.put(wanted).await?;
    let notice = format!("{put}, {}", whose(overrides));
    Ok(Changed { policies: vec![policy.to_owned()], notice })
}

/// Puts every enforced policy into shadow mode, for an hour unless a time is given. Quotas that an operator has changed stay. With several
/// stores, one may have been changed when the next one fails.
pub(super) async fn all_to_shadow(
    scope: &Scope,
    operator: &str,
    input: &Input,
) -> Result<Changed, ActionFault> {
    if input.confirm.as_deref() != Some("yes") {
        return Err(ActionFault::bad(
            "confirm that nothing is to be refused any more: \"confirm\" is \"yes\"",
        ));
    }
    let span = input.span()?;
    let (mut policies, mut notice) = (Vec::new(), String::new());
    for (observed, overrides) in &scope.stores {
        let standing = overrides.read().await?;
        let enforced = Arc::<dyn Store>::from(observed).limiters().all();
        let enforced = enforced.iter().map(RateLimiter::policy).filter(|it| it.mode() == PolicyMode::Enforce);
        let changes: Vec<OverrideBuilder> = enforced
            .map(|policy| {
                policies.push(policy.name().to_owned());
                let over =
                    standing.iter().find(|over| over.policy() == policy.name() && over.key().is_none());
                let wanted = Override::builder(policy.name(), operator).mode(PolicyMode::Shadow);
                instead_of(over.map(|over| &**over), wanted, span)
            })
            .collect();
        if !changes.is_empty() {
            overrides.put_all(changes).await?;
            notice = format!("no policy refuses requests: all are in shadow mode, {}", whose(overrides));
        }
    }
    if policies.is_empty() {
        return Err(ActionFault::new(StatusCode::CONFLICT, "no policy is enforced"));
    }
    Ok(Changed { policies, notice })
}

/// Adds the quotas and the time that an operator has written.
pub(super) fn as_written(mut wanted: OverrideBuilder, input: &Input) -> Result<OverrideBuilder, ActionFault> {
    for quota in input.quota.iter().flat_map(|quotas| quotas.split(',')) {
        wanted = wanted.quota(quota.trim());
    }
    if let Some(span) = input.span()? {
        wanted = wanted.lasting(span);
    }
    match &input.until {
        Some(until) => Ok(wanted.until_us(until_us(until)?)),
        None => Ok(wanted),
    }
}

/// Adds the quotas or the mode of the override that it replaces, if the operator has left them unchanged.
async fn as_it_is(
    mut wanted: OverrideBuilder,
    input: &Input,
    overrides: &Overrides,
    (policy, version): (&str, u64),
) -> Result<OverrideBuilder, ActionFault> {
    let standing = overrides.read().await?;
    let over = standing.iter().find(|over| over.policy() == policy && over.version() == version);
    if let Some(over) = over {
        if input.quota.is_none() {
            wanted = over.quotas().iter().copied().fold(wanted, OverrideBuilder::quota);
        }
        if input.keys.is_none() && over.is_for_new_keys() {
            wanted = wanted.new_keys();
        }
        if let (None, Some(mode)) = (&input.mode, over.mode()) {
            wanted = wanted.mode(mode);
        }
    }
    Ok(wanted)
}

/// Adds the quotas of the override that it replaces.
fn instead_of(
    over: Option<&Override>,
    mut wanted: OverrideBuilder,
    span: Option<Duration>,
) -> OverrideBuilder {
    if let Some(over) = over {
        let quotas = over.quotas().iter().copied().filter(|_| !over.is_for_new_keys());
        wanted = quotas.fold(wanted.replacing(over.version()), OverrideBuilder::quota);
    }
    match span {
        Some(span) => wanted.lasting(span),
        None => wanted,
    }
}

pub(super) fn whose(overrides: &Overrides) -> &'static str {
    if overrides.are_shared() { "on all instances" } else { "on this instance only" }
}

fn until_us(text: &str) -> Result<u64, ActionFault> {
    let since_epoch = page::read(text).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let micros = since_epoch.and_then(|span| u64::try_from(span.as_micros()).ok());
    micros
        .ok_or_else(|| ActionFault::bad(format!("{text:?} is not a moment: write \"2026-11-21T15:00:00Z\"")))
}

/// Ends an override, if the operator has seen it.
pub(super) async fn withdraw(scope: &Scope, operator: &str, input: &Input) -> Result<Changed, ActionFault> {
    let (policy, overrides) = policy_of(scope, input)?;
    let version =
        input.version()?.ok_or_else(|| ActionFault::bad("say by its version which override is withdrawn"))?;
    overrides.withdraw(policy, version, operator).await?;
    Ok(Changed { policies: vec![policy.to_owned()], notice: format!("{policy}: the override is withdrawn") })
}

/// The named policy, and the overrides of its store.
fn policy_of<'a>(scope: &'a Scope, input: &'a Input) -> Result<(&'a str, &'a Overrides), ActionFault> {
    let policy = input.policy.as_deref().ok_or_else(|| ActionFault::bad("no policy is named"))?;
    let overrides = scope.overrides_of(policy).ok_or_else(|| ActionFault::unknown(policy))?;
    Ok((policy, overrides))
}

impl From<OverrideError> for ActionFault {
    fn from(error: OverrideError) -> Self {
        let status = match error.kind() {
            OverrideErrorKind::Invalid => StatusCode::BAD_REQUEST,
            OverrideErrorKind::OutOfDate => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

// Changing waiting rooms: [`change_room`].
//
// The line itself keeps a change of a room, and all instances that share the line apply it. It lasts until the next change: a room that
// reverted to another rate by itself would let visitors in unsupervised.

/// Sets the rate or the mode of a room, or both. Opening it to all has to be confirmed.
pub(super) async fn change_room(
    scope: &Scope,
    operator: &str,
    input: &Input,
) -> Result<RoomChanged, ActionFault> {
    let name = input.room.as_deref().ok_or_else(|| ActionFault::bad("no waiting room is named"))?;
    let room = scope
        .room(name)
        .ok_or_else(|| ActionFault::bad(format!("no waiting room named {name:?} is on this page")))?;
    let (rate, mode) = (input.rate.as_deref(), input.mode.as_deref());
    if rate.is_none() && mode.is_none() {
        return Err(ActionFault::bad("say which rate or which mode the room is to have"));
    }
    if mode == Some("open") && input.confirm.as_deref() != Some("yes") {
        return Err(ActionFault::bad(
            "confirm that all who wait are to be let in at once: \"confirm\" is \"yes\"",
        ));
    }
    let before = room.numbers();
    if let Some(known) = input.seen.as_deref().filter(|known| *known != seen(&before)) {
        let problem =
            format!("{name} was at {known} on that page, and is at {} now: look at it again", seen(&before));
        return Err(ActionFault::new(StatusCode::CONFLICT, problem));
    }
    room.change(rate, mode).await?;
    let after = room.numbers();
    let (from, to) = (seen(&before), seen(&after));
    tracing::info!(target: "sluicegate::audit", by = operator, room = name, from, to, "the waiting room is changed");
    Ok(RoomChanged { room: name.to_owned(), before, after })
}
