//! Actions of an operator: looking up keys, and acting on them.
//!
//! Every action asks the store, so it applies to all instances that share the store. Each change is a line in the log, under the target
//! `sluicegate::audit`, with the name of the operator; a key appears in its displayable form.

mod input;

pub(crate) use self::input::{ActionFault, Face, Input};

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use sluicegate_core::limiter::{OverrideError, OverrideErrorKind, Overrides};
use sluicegate_core::policy::{Override, OverrideBuilder, PolicyMode, Quotas};
use sluicegate_core::{ConfigError, Key, RateLimiter, Store};
use sluicegate_tower::key::{KeyForm, PeerAddr};
use sluicegate_tower::limits::Explanation;

use crate::action::input::{KeyAs, Pretended};
use crate::document::{LookedUp, RoomChanged, by_key, by_request, seen, usual_span};
use crate::page;
use crate::page::Scope;
use crate::secret::Secret;

/// The result of an action.
pub(crate) enum Done {
    LookedUp(LookedUp),
    /// The sentence about an action on a key, and the key's status after it.
    Acted(String, LookedUp),
    Changed(Changed),
    RoomChanged(Box<RoomChanged>),
}

/// Does what this operator asks for.
///
/// # Errors
/// [`ActionFault`] when the verb is unknown, or when the action lacks something.
pub(crate) async fn act(
    scope: &Scope,
    secret: &Secret,
    operator: &str,
    input: &Input,
) -> Result<Done, ActionFault> {
    match input.verb.as_deref().unwrap_or_default() {
        "look-up" => look_up(scope, secret, input).await.map(Done::LookedUp),
        verb @ ("reset" | "suspend" | "release") => act_on_key(scope, secret, operator, verb, input).await,
        "give" => give(scope, secret, operator, input).await,
        "change" => change(scope, operator, input).await.map(Done::Changed),
        "withdraw" => withdraw(scope, operator, input).await.map(Done::Changed),
        "all-to-shadow" => all_to_shadow(scope, operator, input).await.map(Done::Changed),
        "change-room" => change_room(scope, operator, input).await.map(Done::RoomChanged),
        _ => Err(ActionFault::new(StatusCode::NOT_FOUND, "there is no such action")),
    }
}

/// Asks the store for the status of a key; spends nothing.
pub(crate) async fn look_up(scope: &Scope, secret: &Secret, input: &Input) -> Result<LookedUp, ActionFault> {
    match LookupTarget::of(scope, secret, input).await? {
        LookupTarget::Key(limiter, key, doubt) => {
            Ok(by_key(scope, secret, &limiter, &key).await?.doubted(doubt))
        }
        LookupTarget::Request(explained) => Ok(by_request(scope, secret, *explained).await),
    }
}

// The key that an operator means, and its policy: [`LookupTarget`].
//
// A key is named by a word of the page, by its text, or by a request. Errors name the wrong field and never its content, because a
// mistyped key still reveals most of the key.

/// The target of a look-up, in one of the three ways of naming a key.
enum LookupTarget {
    /// A key of a policy, and the reason why it may be no client's key, if any.
    Key(RateLimiter, Key, Option<&'static str>),
    /// The limits that a request would meet.
    Request(Box<Explanation>),
}

impl LookupTarget {
    /// Finds the target, by a word that stands for a key, by policy and key, or by a hypothetical request.
    async fn of(scope: &Scope, secret: &Secret, input: &Input) -> Result<Self, ActionFault> {
        if let Some(word) = &input.reference {
            let unknown = || ActionFault::bad("the key is not known here: look it up again");
            let (policy, key) = secret.unseal(word).ok_or_else(unknown)?;
            return Ok(Self::Key(limiter(scope, &policy)?, key, None));
        }
        if let Some(request) = &input.request {
            return Ok(Self::Request(Box::new(explain(scope, request).await?)));
        }
        match (&input.policy, &input.key) {
            (Some(policy), Some(key)) => {
                let limiter = limiter(scope, policy)?;
                let forms = scope.key_forms(policy);
                let Written { key, doubt } = written(policy, &forms, key, input)?;
                Ok(Self::Key(limiter, key, doubt))
            }
            _ => Err(ActionFault::bad("no key is named: give a policy and its key, or a request")),
        }
    }
}

fn limiter(scope: &Scope, policy: &str) -> Result<RateLimiter, ActionFault> {
    scope.limiter(policy).ok_or_else(|| ActionFault::unknown(policy))
}

/// The limits that a request from this peer would meet, with these header fields.
async fn explain(scope: &Scope, pretended: &Pretended) -> Result<Explanation, ActionFault> {
    let limits = scope.limits_of(pretended.limits.as_deref()).map_err(ActionFault::bad)?;
    let request = request(pretended).map_err(ActionFault::bad)?;
    Ok(limits.current().explain(&request).await)
}

/// Builds the request. Mistakes name the field, and never its content.
fn request(pretended: &Pretended) -> Result<Request<()>, &'static str> {
    let method = pretended.method.as_deref().unwrap_or("GET").parse::<Method>();
    let mut request = Request::builder()
        .method(method.map_err(|_| "the method is none: write GET or POST")?)
        .uri(pretended.path.as_deref().unwrap_or("/"))
        .body(())
        .map_err(|_| "the path is none: write /login")?;
    if let Some(peer) = pretended.peer.as_deref() {
        let address = peer.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0)).or_else(|_| peer.parse());
        let address = address.map_err(|_| "the peer is not an address: write 203.0.113.9")?;
        request.extensions_mut().insert(PeerAddr(address));
    }
    for (name, value) in pretended.headers.fields().ok_or("a header field is one line each: name: value")? {
        let name = name.parse::<HeaderName>().map_err(|_| "the name of a header field is none")?;
        let value = value.parse::<HeaderValue>().map_err(|_| "the value of a header field is none")?;
        request.headers_mut().append(name, value);
    }
    Ok(request)
}

// Acting on a key: [`act_on_key`].
//
// The answer is the key's status afterwards, from a separate peek. In a flood it may differ from the state right after the action, and
// the operator needs the current state.

/// Resets a key, which makes its buckets of one policy full again; suspends it for a time; or releases it, which forgets its refusals, too.
async fn act_on_key(
    scope: &Scope,
    secret: &Secret,
    operator: &str,
    verb: &str,
    input: &Input,
) -> Result<Done, ActionFault> {
    let (limiter, key) = one(LookupTarget::of(scope, secret, input).await?, input.policy.as_deref(), scope)?;
    let policy = limiter.policy();
    let (done, decision) = match verb {
        "reset" => {
            let (done, reset) = ("the key is reset", limiter.reset(&key).await?);
            tracing::info!(target: "sluicegate::audit", by = operator, policy = policy.name(), key = key.shown(), "{done}");
            (done, reset)
        }
        "suspend" => {
            let lasts = input.span()?.unwrap_or_else(|| usual_span(&policy));
            ("the key is suspended", limiter.suspensions().by(operator).suspend(&key, lasts).await?)
        }
        _ => ("the key is released", limiter.suspensions().by(operator).release(&key).await?),
    };
    // The page shows how the key stands now, with all its limits.
    drop(decision);
    Ok(Done::Acted(done.to_owned(), by_key(scope, secret, &limiter, &key).await?))
}

/// The key of the named policy, among those that a request would meet.
fn one(target: LookupTarget, policy: Option<&str>, scope: &Scope) -> Result<(RateLimiter, Key), ActionFault> {
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

// Giving quotas to one key for a time: [`give`].
//
// It is an override for only that key, with a version of its own, and is withdrawn like an override of a policy.

/// Puts the override: for an hour unless a time is given.
async fn give(scope: &Scope, secret: &Secret, operator: &str, input: &Input) -> Result<Done, ActionFault> {
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
    let done = format!("{put}, {}", whose(overrides));
    Ok(Done::Acted(done, by_key(scope, secret, &limiter, &key).await?))
}

// A key named by its text: [`written`].
//
// The extractors of the limits decide which key a text names: an address stands for its network, and the key of an API key is a digest. If
// the text itself as a key would differ from the key of the requests, it would match no client, so it is refused.

/// A key that an operator has written.
struct Written {
    key: Key,
    /// The reason why it may be no client's key. Then an unknown key is not reported as passing.
    doubt: Option<&'static str>,
}

/// The key of a policy whose limits find keys of these forms.
fn written(
    policy: &str,
    forms: &[KeyForm],
    text: &str,
    Input { key_as, issuer, .. }: &Input,
) -> Result<Written, ActionFault> {
    let of = |word: &str| {
        forms.iter().filter(|form| form.word() == word).find_map(|form| form.key(text, issuer.as_deref()))
    };
    let plain = || of("text").unwrap_or_else(|| Key::from(text));
    let is_number = || text.parse::<i128>();
    let key = match key_as {
        KeyAs::Any if !forms.is_empty() && forms.iter().all(|form| form.word() == "all") => of("all"),
        KeyAs::Any => of("address").or_else(|| {
            let is_plain = |form: &KeyForm| !matches!(form.word(), "secret" | "subject" | "several");
            let address = || text.parse::<IpAddr>().map(Key::from);
            forms.iter().all(is_plain).then(|| address().unwrap_or_else(|_| plain()))
        }),
        KeyAs::Text => Some(plain()),
        KeyAs::Number => {
            Some(is_number().map_err(|_| ActionFault::bad("the key is not a whole number"))?.into())
        }
        KeyAs::Secret => of("secret"),
        KeyAs::Subject => of("subject"),
    };
    let doubt = match key_as {
        _ if forms.is_empty() => {
            Some("if its keys are written so: no limits that the page was given by limits(..) ask the policy")
        }
        KeyAs::Any if is_number().is_ok() => Some("if its keys are text: \"as\" says that they are numbers"),
        _ => None,
    };
    let key = key.ok_or_else(|| unwritten(policy, forms))?;
    Ok(Written { key, doubt })
}

/// Reports that the text is no key of this policy, or that it is unclear which one.
fn unwritten(policy: &str, forms: &[KeyForm]) -> ActionFault {
    let mut all: Vec<String> = Vec::new();
    for form in forms {
        let said = match form.word() {
            word @ ("secret" | "subject") => format!("{form}, as {word:?}"),
            _ => form.to_string(),
        };
        if !all.contains(&said) {
            all.push(said);
        }
    }
    ActionFault::bad(match &*all {
        [] => format!(
            "no limits that the page was given by limits(..) ask policy {policy:?}, so it is not known how its keys are made"
        ),
        all => format!(
            "the text names no key of policy {policy:?}: write {}; or look it up as a request",
            all.join(", or ")
        ),
    })
}

// Changing policies for a time: [`change`], [`all_to_shadow`] and [`withdraw`].
//
// A change is an override in the store. It has a version, and an operator who replaces or withdraws an override sends the version that they
// have seen: if two operators act at the same time, the second learns of the first one's change.

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
        let standing = overrides.read().await?;
        let replaced = standing.iter().find(|over| over.policy() == policy && over.version() == version);
        wanted = wanted.replacing(version);
        if let Some(replaced) = replaced {
            wanted = as_it_is(wanted, input, replaced);
        }
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
fn as_written(mut wanted: OverrideBuilder, input: &Input) -> Result<OverrideBuilder, ActionFault> {
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
fn as_it_is(mut wanted: OverrideBuilder, input: &Input, replaced: &Override) -> OverrideBuilder {
    if input.quota.is_none() {
        wanted = replaced.quotas().iter().copied().fold(wanted, OverrideBuilder::quota);
    }
    if input.keys.is_none() && replaced.is_for_new_keys() {
        wanted = wanted.new_keys();
    }
    match (&input.mode, replaced.mode()) {
        (None, Some(mode)) => wanted.mode(mode),
        _ => wanted,
    }
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
async fn change_room(scope: &Scope, operator: &str, input: &Input) -> Result<Box<RoomChanged>, ActionFault> {
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
    Ok(Box::new(RoomChanged { room: name.to_owned(), before, after }))
}
