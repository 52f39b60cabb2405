//! A page about limits of our own, and requests to it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use http::request::Builder;
use http::{HeaderMap, Request, Response, StatusCode};
use serde_json::Value;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_observed::Observed;
use sluicegate_status::{StatusPage, StatusPageBuilder};
use sluicegate_tower::key::{HeaderKey, PeerAddr};
use sluicegate_tower::limits::{Limits, LimitsHandle, path_in};
use sluicegate_tower::{Limit, PeerIp};
use tower::ServiceExt;

pub(crate) const SECRET: [u8; 32] = [7; 32];
pub(crate) const ORIGIN: &str = "https://ops.example.org";
/// A key that is nobody's to see.
pub(crate) const PLANTED: &str = "sk_live_51Hx7planted";

/// A service with a limit by address and one by a secret header, and its page.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: Observed,
    pub(crate) login: RateLimiter,
    pub(crate) limits: Limits,
}

impl World {
    pub(crate) fn new() -> Self {
        /// Of the worlds of one process, each has a name of its own.
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let (store, clock) = sluicegate_tests::memory::store();
        let name = format!("memory-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
        let store = Observed::named(name, store).unwrap();
        let login = Policy::sliding_counter("login", "5/min").on(&store).unwrap();
        let api = Policy::gcra("api", "100/min").on(&store).unwrap();
        let by_key = Limit::new(api).key(HeaderKey::new("x-api-key").unwrap());
        let by_peer = Limit::new(login.clone()).key(PeerIp::new()).only_if(path_in(["/login"]).unwrap());
        let limits = Limits::builder(by_peer).and(by_key).build().unwrap();
        Self { clock, store, login, limits }
    }

    pub(crate) fn page(&self) -> StatusPageBuilder {
        let limits = LimitsHandle::new(self.limits.clone());
        StatusPage::new(&self.store).limits("api", limits).instance("web-3").clock(self.clock.clone())
    }

    /// For the operator whom the header `x-operator` names.
    pub(crate) fn guarded(&self) -> StatusPage {
        let who = |request: sluicegate_tower::key::RequestView<'_>| {
            request.headers.get("x-operator")?.to_str().ok().map(str::to_owned)
        };
        self.page().guard(who).secret(SECRET).origin(ORIGIN).build().unwrap()
    }

    pub(crate) fn read_only(&self) -> StatusPage {
        self.page().unguarded_and_read_only().build().unwrap()
    }

    /// Spends from `login` by this address, and from `api` by the planted key.
    pub(crate) async fn spend(&self, ip: [u8; 4], times: u32) {
        for _ in 0..times {
            let request = Request::get("/login").header("x-api-key", PLANTED);
            let request = request.extension(PeerAddr(SocketAddr::new(IpAddr::from(ip), 1))).body(()).unwrap();
            // Some are refused.
            _ = self.limits.decide(&request.into_parts().0).await;
        }
    }
}

/// A request as the operator's browser sends it.
pub(crate) fn from_ada(method: &str, path: &str) -> Builder {
    Request::builder().method(method).uri(path).header("host", "ops.example.org").header("x-operator", "ada")
}

pub(crate) async fn send(page: &StatusPage, request: Builder, body: &str) -> Response<String> {
    page.clone().oneshot(request.body(body.to_owned()).unwrap()).await.unwrap()
}

pub(crate) async fn get(page: &StatusPage, path: &str) -> Response<String> {
    send(page, from_ada("GET", path), "").await
}

/// The token that programs get.
pub(crate) async fn token(page: &StatusPage) -> String {
    let response = get(page, "/status.json").await;
    response.headers()["x-status-token"].to_str().unwrap().to_owned()
}

/// What a program sends, with a fresh token.
pub(crate) async fn post(page: &StatusPage, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = from_ada("POST", path)
        .header("x-status-token", token(page).await)
        .header("origin", ORIGIN)
        .header("content-type", "application/json");
    let response = send(page, request, &body.to_string()).await;
    (response.status(), serde_json::from_str(response.body()).unwrap())
}

/// What the page's own form sends, with a fresh token, and the answer itself.
pub(crate) async fn submit_to(page: &StatusPage, path: &str, form: &str) -> Response<String> {
    let body = format!("token={}&{form}", token(page).await);
    let request = from_ada("POST", path)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/x-www-form-urlencoded");
    send(page, request, &body).await
}

/// The same, and then as a browser goes on.
pub(crate) async fn submit(page: &StatusPage, form: &str) -> Response<String> {
    led_on(page, submit_to(page, "/", form).await).await
}

/// The page that a browser is led to.
pub(crate) async fn led_on(page: &StatusPage, response: Response<String>) -> Response<String> {
    if response.status() != StatusCode::SEE_OTHER {
        return response;
    }
    get(page, &format!("/{}", response.headers()["location"].to_str().unwrap())).await
}

pub(crate) fn is_sealed(headers: &HeaderMap) -> bool {
    let fields = [
        (
            "content-security-policy",
            "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ];
    fields.iter().all(|(name, value)| headers.get_all(*name).iter().eq([value]))
}
