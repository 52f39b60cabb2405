//! The key that an operator means, and its policy: [`LookupTarget`].
//!
//! A key is named by a word of the page, by its text, or by a request. Errors name the wrong field and never its content, because a
//! mistyped key still reveals most of the key.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Method, Request};
use sluicegate_core::{Key, RateLimiter};
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::limits::Explanation;

use super::fault::ActionFault;
use super::input::{Input, Pretended};
use super::written::{Written, written};
use crate::scope::Scope;
use crate::secret::Secret;

/// The target of a look-up, in one of the three ways of naming a key.
pub(super) enum LookupTarget {
    /// A key of a policy, and the reason why it may be no client's key, if any.
    Key(RateLimiter, Key, Option<&'static str>),
    /// The limits that a request would meet.
    Request(Box<Explanation>),
}

impl LookupTarget {
    /// Finds the target, by a word that stands for a key, by policy and key, or by a hypothetical request.
    pub(super) async fn of(scope: &Scope, secret: &Secret, input: &Input) -> Result<Self, ActionFault> {
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
