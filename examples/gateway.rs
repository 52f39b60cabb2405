//! A reverse proxy with its limits in a file, `gateway/rules.yaml`: it follows the file, and reads it again on SIGHUP.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme, Uri};
use http::{StatusCode, Version};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sluicegate::MemoryStore;
use sluicegate::rules::{Rules, Variables};
use sluicegate_examples::listen;
use tokio::sync::watch;

/// The longest time that the upstream may take without reading a byte of the request or beginning its answer.
const PATIENCE: Duration = Duration::from_secs(10);

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Fields that apply only to one connection (RFC 9110, section 7.6.1) and must not be forwarded.
const OF_ONE_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The server behind the gateway. Clones share their connections to it.
#[derive(Clone)]
pub(crate) struct Upstream {
    client: Client<HttpConnector, Body>,
    authority: Authority,
    patience: Duration,
}

impl Upstream {
    /// The server at a URL such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// When it is not the URL of a plain HTTP server.
    pub(crate) fn at(url: &str, patience: Duration) -> Result<Self, String> {
        let parsed: Uri = url.parse().map_err(|error| format!("UPSTREAM {url:?} is not a URL: {error}"))?;
        let authority = parsed.authority().filter(|_| parsed.scheme() == Some(&Scheme::HTTP));
        let authority = authority.cloned().ok_or_else(|| {
            format!(
                "UPSTREAM {url:?} names no server that speaks plain HTTP: write it as http://127.0.0.1:8080"
            )
        })?;
        Ok(Self { client: Client::builder(TokioExecutor::new()).build_http(), authority, patience })
    }

    /// Passes a request on, and its answer back: heads at once, bodies as they come, both ways.
    async fn forward(&self, peer: SocketAddr, mut request: Request) -> Response {
        if !is_plain(request.uri().path()) {
            return (
                StatusCode::BAD_REQUEST,
                "this gateway passes on plain paths only: no '.' or '..', no '//', no '%2F'\n",
            )
                .into_response();
        }
        let Some(host) = host(&request) else {
            return (StatusCode::BAD_REQUEST, "this gateway passes on requests that name one host\n")
                .into_response();
        };
        let path = request.uri().path_and_query().cloned();
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone());
        let Some(Ok(uri)) = path.map(|path| uri.path_and_query(path).build()) else {
            return (StatusCode::BAD_REQUEST, "this gateway passes on paths only\n").into_response();
        };
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        leave_out_what_is_of_one_connection(request.headers_mut());
        // Rules that settle read the answers, which must not be compressed.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        request.headers_mut().insert(header::HOST, host);
        if let Ok(peer) = HeaderValue::try_from(peer.ip().to_string()) {
            request.headers_mut().append(FORWARDED_FOR, peer);
        }
        let (moved, mut moves) = watch::channel(());
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                moved.send_replace(());
                frame
            }))
        });
        let mut answer = std::pin::pin!(self.client.request(request));
        loop {
            // An upload that makes progress is not slow, however long it takes.
            let answer = tokio::select! {
                answer = &mut answer => answer,
                Ok(()) = moves.changed() => continue,
                () = tokio::time::sleep(self.patience) => {
                    return (StatusCode::GATEWAY_TIMEOUT, "the upstream does not answer\n").into_response();
                }
            };
            return match answer {
                Ok(mut response) => {
                    leave_out_what_is_of_one_connection(response.headers_mut());
                    response.map(Body::new)
                }
                Err(_) => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached\n").into_response(),
            };
        }
    }
}

/// Whether every upstream reads the path as the rules did: it has no segment `.` or `..`, no empty one,
/// and no needless percent-encoding, nor an encoded slash or a backslash.
fn is_plain(path: &str) -> bool {
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    let disguises = path.split('%').skip(1).any(|after| {
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_none_or(|byte| byte.is_ascii_alphanumeric() || b"-._~/\\".contains(&byte))
    });
    !disguises && !path.contains("//") && !path.contains('\\') && !path.split('/').any(is_dots)
}

/// The host of a request, with its port: from its target, or else from the field `Host` (RFC 9112, section 3.2.2), as the rules
/// read it. `None` if it is invalid, or if there are two fields, because the upstream might read the other one.
fn host(request: &Request) -> Option<HeaderValue> {
    let mut fields = request.headers().get_all(header::HOST).iter();
    let (field, None) = (fields.next(), fields.next()) else { return None };
    let named = match (request.uri().authority(), field) {
        (Some(target), _) => target.as_str().rsplit('@').next()?,
        (None, field) => field?.to_str().ok()?,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    let host: Authority = named.parse().ok().filter(|_| named.bytes().all(is_plain))?;
    HeaderValue::try_from(host.as_str()).ok()
}

/// Removes fields that always apply to one connection, and those that `Connection` names.
fn leave_out_what_is_of_one_connection(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok());
    let named: Vec<HeaderName> = names.collect();
    for name in named.iter().chain(&OF_ONE_CONNECTION) {
        headers.remove(name);
    }
}

/// The gateway: every path goes to the upstream, if the rules allow it.
pub(crate) fn app(rules: &Rules, upstream: Upstream) -> Router {
    let forward = async |State(upstream): State<Upstream>, ConnectInfo(peer), request: Request| {
        upstream.forward(peer, request).await
    };
    Router::new().fallback(forward).with_state(upstream).layer(rules.layer().reading_requests())
}

/// The rules at `RULES`, or those beside this file. The file may change while they are in force.
fn rules() -> Result<(Rules, PathBuf), Box<dyn Error>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway/rules.yaml");
    let path = std::env::var_os("RULES").map_or(beside, PathBuf::from);
    let rules = Rules::open(MemoryStore::new(), &path, Variables::environment())
        .map_err(|error| error.to_string())?;
    rules.follow();
    #[cfg(unix)]
    rules.reload_on_sighup()?;
    Ok((rules, path))
}

fn guide(address: SocketAddr, upstream: &str, rules: &Path) -> String {
    format!(
        "\
Sluicegate gateway on http://{address}, in front of {upstream}, with the limits in
{}

Without a server behind it, requests get 502, and the limit of each client has its unit back. With one, such as

  python3 -m http.server 8080

20 of 30 pass at once, and one more each tenth of a second:

  seq 30 | xargs -P 30 -I{{}} curl -s -o /dev/null -w '%{{http_code}}\\n' http://{address}/ | sort | uniq -c

Change \"burst 20\" to \"burst 25\" in the file, and try again. What is wrong in the file is said here, and changes nothing.
UPSTREAM, RULES and PORT choose others, such as RULES=examples/gateway/openai.yaml before an API like OpenAI's; `kill -HUP {}` reads the file again. Ctrl-C ends it.",
        rules.display(),
        std::process::id()
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let url = std::env::var("UPSTREAM").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    let upstream = Upstream::at(&url, PATIENCE)?;
    let (rules, path) = rules()?;
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?, &url, &path));
    axum::serve(listener, app(&rules, upstream).into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
