//! Actions of an operator: looking up keys, and acting on them.
//!
//! Every action asks the store, so it applies to all instances that share the store. Each change is a line in the log, under the target
//! `sluicegate::audit`, with the name of the operator; a key appears in its displayable form.

mod input;
mod policy;

pub(crate) use self::input::{ActionFault, Face, Input};

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use sluicegate_core::policy::{Override, Quotas};
use sluicegate_core::{Key, RateLimiter};
use sluicegate_tower::key::{KeyForm, PeerAddr};
use sluicegate_tower::limits::Explanation;

use crate::action::input::{KeyAs, Pretended};
use crate::action::policy::{Changed, all_to_shadow, as_written, change, change_room, whose, withdraw};
use crate::document::{LookedUp, RoomChanged, by_key, by_request, usual_span};
use crate::page::Scope;
use crate::secret::Secret;

// Does the action that a verb names: [`act`].

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
    let verb = input.verb.as_deref().and_then(OperatorAction::read);
    match verb.ok_or_else(|| ActionFault::new(StatusCode::NOT_FOUND, "there is no such action"))? {
        OperatorAction::LookUp => look_up(scope, secret, input).await.map(Done::LookedUp),
        OperatorAction::Key(action) => {
            let found = act_on_key(scope, secret, (action, operator), input).await?;
            Ok(Done::Acted(action.to_string(), found))
        }
        OperatorAction::Give => {
            let (done, found) = give(scope, secret, operator, input).await?;
            Ok(Done::Acted(done, found))
        }
        OperatorAction::Change => change(scope, operator, input).await.map(Done::Changed),
        OperatorAction::Withdraw => withdraw(scope, operator, input).await.map(Done::Changed),
        OperatorAction::AllToShadow => all_to_shadow(scope, operator, input).await.map(Done::Changed),
        OperatorAction::ChangeRoom => {
            let changed = change_room(scope, operator, input).await?;
            Ok(Done::RoomChanged(Box::new(changed)))
        }
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

/// The action that an operator asks for.
#[derive(Clone, Copy)]
enum OperatorAction {
    LookUp,
    Key(KeyAction),
    /// Gives quotas to a key.
    Give,
    Change,
    Withdraw,
    AllToShadow,
    ChangeRoom,
}

impl OperatorAction {
    /// Reads the word as forms and paths write it.
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "look-up" => Self::LookUp,
            "reset" => Self::Key(KeyAction::Reset),
            "suspend" => Self::Key(KeyAction::Suspend),
            "release" => Self::Key(KeyAction::Release),
            "give" => Self::Give,
            "change" => Self::Change,
            "withdraw" => Self::Withdraw,
            "all-to-shadow" => Self::AllToShadow,
            "change-room" => Self::ChangeRoom,
            _ => return None,
        })
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
                let read_as = (input.key_as, input.issuer.as_deref());
                let Written { key, doubt } = written((policy, &scope.key_forms(policy)), key, read_as)?;
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

/// An action on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAction {
    /// Makes its buckets of one policy full again.
    Reset,
    /// Refuses it outright, for a time.
    Suspend,
    /// Ends its suspension, and forgets its refusals.
    Release,
}

/// Does the action, and returns the status of the key after it.
async fn act_on_key(
    scope: &Scope,
    secret: &Secret,
    (action, operator): (KeyAction, &str),
    input: &Input,
) -> Result<LookedUp, ActionFault> {
    let (limiter, key) = one(LookupTarget::of(scope, secret, input).await?, input.policy.as_deref(), scope)?;
    let policy = limiter.policy();
    let done = match action {
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
    // The page shows how the key stands now, with all its limits.
    drop(done);
    Ok(by_key(scope, secret, &limiter, &key).await?)
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

impl fmt::Display for KeyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "the key is reset",
            Self::Suspend => "the key is suspended",
            Self::Release => "the key is released",
        })
    }
}

// Giving quotas to one key for a time: [`give`].
//
// It is an override for only that key, with a version of its own, and is withdrawn like an override of a policy.

/// Puts the override: for an hour unless a time is given. Returns a sentence about it, and the status of the key under it.
async fn give(
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
    Ok((format!("{put}, {}", whose(overrides)), by_key(scope, secret, &limiter, &key).await?))
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
    (policy, forms): (&str, &[KeyForm]),
    text: &str,
    (read_as, issuer): (KeyAs, Option<&str>),
) -> Result<Written, ActionFault> {
    let of =
        |word: &str| forms.iter().filter(|form| form.word() == word).find_map(|form| form.key(text, issuer));
    let plain = || of("text").unwrap_or_else(|| Key::from(text));
    let is_number = || text.parse::<i128>();
    let key = match read_as {
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
    let doubt = match read_as {
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
