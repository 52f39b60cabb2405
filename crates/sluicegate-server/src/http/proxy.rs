//! Endpoints for proxies that ask before they forward a request, one per dialect.
//!
//! The request that the rules see is the one that the proxy received: its method, target and host come from the fields that the dialect
//! names, its peer is the last address in `X-Forwarded-For`, and the rest of that field is what the client sent. These fields are read
//! only from peers that were named as proxies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use sluicegate_core::support::Seldom;
use sluicegate_tower::key::{MissingKey, NoPeer, PeerAddr};
use sluicegate_tower::respond::ProblemJson;

use crate::app::App;
use crate::connection::CallerMark;
use crate::http::described::address;
use crate::http::{CallProblem, bounded};

const EXT_AUTHZ: &str = "/proxy/ext-authz";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The status of a refusal, where the proxy would take it for that of a server that is away.
const STATUS: HeaderName = HeaderName::from_static("x-sluicegate-status");

/// The characters of a target that proxies accept and the type does not, in addition to those that are not ASCII.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// How a proxy describes the request that it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// nginx' `auth_request`, by `X-Original-Method`, `X-Original-URI` and `Host`.
    Nginx,
    /// `forward_auth` of Caddy and `forwardAuth` of Traefik, by `X-Forwarded-Method`, `-Uri` and `-Host`.
    ForwardAuth,
    /// `ext_authz` of Envoy over HTTP: the request itself, with a prefix in front of its path.
    ExtAuthz,
}

/// The endpoints.
pub(super) fn routes() -> Router<Arc<App>> {
    let ask = |dialect| {
        any(async move |State(app): State<Arc<App>>, request| {
            let answer = bounded(&app, ask(&app, dialect, request)).await;
            answer.unwrap_or_else(|problem| dialect.refusal(problem.into_response()))
        })
    };
    Router::new()
        .route("/proxy/nginx", ask(Dialect::Nginx))
        .route("/proxy/forward-auth", ask(Dialect::ForwardAuth))
        .route("/proxy/ext-authz", ask(Dialect::ExtAuthz))
        .route("/proxy/ext-authz/", ask(Dialect::ExtAuthz))
        .route("/proxy/ext-authz/{*path}", ask(Dialect::ExtAuthz))
}

/// Lets the named proxies in.
pub(super) async fn if_named(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get().map(|PeerAddr(peer)| *peer);
    match peer.is_some_and(|peer| app.proxies.contains(peer.ip())) {
        true => {
            CallerMark::let_in(request.extensions());
            next.run(request).await
        }
        false => not_named(peer).into_response(),
    }
}

async fn ask(app: &App, dialect: Dialect, request: Request) -> Response {
    let (mut head, _) = request.into_parts();
    let original = match dialect.original(&mut head) {
        Ok(original) => original,
        Err(problem) => {
            static UNREAD: Seldom = Seldom::new();
            if UNREAD.is_due() {
                tracing::warn!(?dialect, "{}; said once a second", problem.detail);
            }
            // A proxy may let a request pass while the server is away, so the answer to a value that a client can write is a refusal.
            return match problem.status.is_client_error() {
                true => dialect.refusal(problem.into_response()),
                false => problem.into_response(),
            };
        }
    };
    let limits = app.rules.limits();
    match app.ready.unless_ending(limits.decide(&original)).await {
        Some(Ok(admitted)) => admitted.leave(Response::new(Body::empty())),
        // Responds to a plain request: a proxy's request may be marked as gRPC, whose refusals have the status 200.
        Some(Err(refused)) => dialect.refusal(refused.respond(&http::Request::new(()), &ProblemJson::new())),
        None => CallProblem::shutting_down().into_response(),
    }
}

/// The log has a warning only for the first such peer, because anyone can be one.
fn not_named(peer: Option<SocketAddr>) -> CallProblem {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    // Relaxed: the flag orders nothing else.
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            ?peer,
            "a peer that is not named by --proxy asked as a proxy; later ones are not logged"
        );
    }
    CallProblem::new(StatusCode::FORBIDDEN, "this peer is not a named proxy: name its network by --proxy")
}

impl Dialect {
    /// The request that the proxy received.
    fn original(self, head: &mut Parts) -> Result<http::Request<()>, CallProblem> {
        let mut headers = std::mem::take(&mut head.headers);
        let (method, uri) = match self {
            Self::Nginx => {
                // Its own call has no body.
                let length = headers.remove("x-original-content-length");
                length.and_then(|length| headers.insert(CONTENT_LENGTH, length));
                (method(&mut headers, "x-original-method")?, target(&mut headers, "x-original-uri")?)
            }
            Self::ForwardAuth => {
                let host = headers.remove("x-forwarded-host");
                host.and_then(|host| headers.insert(HOST, host));
                (method(&mut headers, "x-forwarded-method")?, target(&mut headers, "x-forwarded-uri")?)
            }
            Self::ExtAuthz => (head.method.clone(), without_prefix(&head.uri)),
        };
        if let Some(authority) = head.uri.authority().filter(|_| self == Self::ExtAuthz) {
            headers.insert(HOST, HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("host"))?);
        }
        let mut original = http::Request::new(());
        match take_peer(&mut headers)? {
            Some(peer) => _ = original.extensions_mut().insert(PeerAddr(peer)),
            None => {
                let missing =
                    MissingKey::mistake("the proxy sends no X-Forwarded-For with the address of its peer");
                original.extensions_mut().insert(NoPeer(missing));
            }
        }
        (*original.method_mut(), *original.uri_mut(), *original.headers_mut()) = (method, uri, headers);
        Ok(original)
    }

    /// The refusal in a status that the proxy does not take for that of a server that is away: nginx knows 401 and 403 only, and Envoy takes
    /// all from 500 on for it. The others pass on every status.
    fn refusal(self, mut refusal: Response) -> Response {
        let status = match self {
            Self::Nginx => StatusCode::FORBIDDEN,
            Self::ExtAuthz if refusal.status().is_server_error() => StatusCode::TOO_MANY_REQUESTS,
            Self::ExtAuthz | Self::ForwardAuth => return refusal,
        };
        let own = HeaderValue::from(refusal.status().as_u16());
        refusal.headers_mut().insert(STATUS, own);
        *refusal.status_mut() = status;
        refusal
    }
}

fn method(headers: &mut HeaderMap, name: &'static str) -> Result<Method, CallProblem> {
    Method::from_bytes(take(headers, name)?.as_bytes()).map_err(|_| wrong(name))
}

/// Takes a request target. Proxies accept more characters in it than the type does, so these are encoded.
fn target(headers: &mut HeaderMap, name: &'static str) -> Result<Uri, CallProblem> {
    let given = take(headers, name)?;
    let target = percent_encode(given.as_bytes(), ENCODED).to_string();
    target.parse().map_err(|_| wrong(name))
}

/// Takes a field that the proxy sets on every request.
fn take(headers: &mut HeaderMap, name: &'static str) -> Result<HeaderValue, CallProblem> {
    headers.remove(name).ok_or_else(|| {
        // Some proxies pass this answer on to the client.
        static UNSET: Seldom = Seldom::new();
        if UNSET.is_due() {
            tracing::error!(
                field = name,
                "calls are answered with 500: the proxy does not set this header field; said once a second"
            );
        }
        let detail = "this server does not know which request is meant";
        CallProblem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })
}

/// Takes the peer of the proxy off the end of `X-Forwarded-For`. Only this end is read, because its peer writes the rest of the field.
fn take_peer(headers: &mut HeaderMap) -> Result<Option<SocketAddr>, CallProblem> {
    let Some(last) = headers.get_all(&FORWARDED_FOR).iter().next_back() else { return Ok(None) };
    let last = last.as_bytes();
    let comma = last.iter().rposition(|&byte| byte == b',');
    let (rest, peer) = comma.map_or((None, last), |comma| (Some(&last[..comma]), &last[comma + 1..]));
    let peer = str::from_utf8(peer).ok().and_then(|peer| address(peer.trim()).ok());
    let peer = peer.ok_or_else(|| wrong("x-forwarded-for"))?;
    let rest = rest.map(HeaderValue::from_bytes).transpose().map_err(|_| wrong("x-forwarded-for"))?;
    let mut values: Vec<HeaderValue> = headers.get_all(&FORWARDED_FOR).iter().cloned().collect();
    values.pop();
    values.extend(rest);
    headers.remove(&FORWARDED_FOR);
    for value in values {
        headers.append(FORWARDED_FOR, value);
    }
    Ok(Some(peer))
}

fn without_prefix(uri: &Uri) -> Uri {
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let rest = target.strip_prefix(EXT_AUTHZ).unwrap_or(target);
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    rest.parse().unwrap_or_default()
}

fn wrong(name: &str) -> CallProblem {
    CallProblem::bad(format!("the header field {name} has a value that cannot be read"))
}
