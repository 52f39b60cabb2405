//! The layer: pages for browsers, JSON for programs, tickets that are good, and those that are not.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, COOKIE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use sluicegate_core::clock::ManualClock;
use sluicegate_overflow::line::{LineMode, MemoryLine};
use sluicegate_overflow::{Pass, Reply, WaitingRoom, WaitingRoomBuilder, WaitingRoomLayer};
use sluicegate_tower::key::HeaderKey;
use tower::{Layer, Service, ServiceExt};

use crate::support::{START, seconds};

const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
const SECRET: &[u8] = b"16 bytes or more";

/// A shop that ends the pass of a visitor that goes to `/paid`.
#[derive(Clone)]
struct Shop;

impl Service<Request<()>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let pass = request.extensions().get::<Pass>().cloned().expect("the layer has left it");
        Box::pin(async move {
            if request.uri().path() == "/paid" {
                pass.end().await.unwrap();
            }
            Ok(Response::new(Full::new(Bytes::from("the shop"))))
        })
    }
}

struct Place {
    clock: ManualClock,
    room: WaitingRoom,
}

impl Place {
    fn new(rate: &str, settings: impl FnOnce(WaitingRoomBuilder) -> WaitingRoomBuilder) -> Self {
        let clock = ManualClock::new();
        clock.set(START);
        let builder = WaitingRoom::builder("sale", rate).clock(clock.clone()).secrets(SECRET, None);
        Self { room: settings(builder).build(MemoryLine::new()).unwrap(), clock }
    }

    async fn send(&self, request: http::request::Builder) -> Answer {
        let service = WaitingRoomLayer::new(self.room.clone()).layer(Shop);
        let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { head, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// A program that keeps its cookie.
    async fn get(&self, cookie: &str) -> Answer {
        self.send(Request::get("/").header(COOKIE, cookie)).await
    }
}

struct Answer {
    head: http::response::Parts,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.head.headers["content-type"], "application/problem+json", "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    fn field(&self, name: &str) -> &str {
        self.head.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The cookie as a browser sends it back.
    fn cookie(&self) -> String {
        self.field("set-cookie").split(';').next().unwrap_or_default().to_owned()
    }

    fn is_in(&self) -> bool {
        self.head.status == StatusCode::OK
    }
}

#[tokio::test(start_paused = true)]
async fn a_browser_gets_a_page_that_refreshes_itself_and_a_program_gets_json() {
    let place = Place::new("6/min", |room| room);
    assert!(place.send(Request::get("/")).await.is_in());
    let page = place.send(Request::get("/").header(ACCEPT, BROWSER)).await;
    assert_eq!(page.head.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((page.field("retry-after"), page.field("cache-control")), ("7", "no-store"));
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    assert!(page.body.contains(r#"<meta http-equiv="refresh" content="7">"#), "{}", page.body);
    assert!(!page.body.contains("<script"), "{}", page.body);

    let json = place.send(Request::get("/")).await.json();
    assert_eq!((&json["reason"], &json["position"]), (&"waiting".into(), &2.into()));
    // A fetch of a script's asks for the place of its page, and takes none.
    let fetch = || Request::get("/").header(ACCEPT, BROWSER).header("sec-fetch-mode", "cors");
    assert_eq!(place.send(fetch()).await.json()["reason"], "enter-first");
    let polled = place.send(fetch().header(COOKIE, page.cookie())).await.json();
    assert_eq!((&polled["reason"], &polled["position"]), (&"waiting".into(), &1.into()));
    assert!(json["wait_ms"].as_u64() > Some(19_000) && json["ticket"].is_string(), "{json}");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_keeps_its_place_until_its_pass_and_the_pass_asks_nobody() {
    let place = Place::new("6/min", |room| room);
    place.send(Request::get("/")).await;
    let first = place.get("").await;
    let ticket = first.cookie();
    assert!(ticket.starts_with("__Host-room-sale="), "{ticket}");
    for part in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
        assert!(first.field("set-cookie").contains(part), "{part}");
    }
    place.clock.advance(seconds(5));
    let again = place.get(&format!("theme=dark; {ticket}; other=1")).await;
    assert_eq!((&again.json()["position"], again.field("set-cookie")), (&1.into(), ""));

    // Half a second early: it is held until its turn.
    place.clock.advance(Duration::from_millis(4_500));
    let begun = tokio::time::Instant::now();
    let turn = place.get(&ticket).await;
    assert!(turn.is_in() && begun.elapsed() >= Duration::from_millis(499), "{:?}", begun.elapsed());
    let pass = turn.cookie();
    assert_ne!(pass, ticket);
    assert_eq!(turn.field("cache-control"), "no-store", "a cache would hand the pass to all");
    let admitted = place.room.status().admitted;
    for _ in 0..20 {
        assert!(place.get(&pass).await.is_in());
    }
    assert!(place.send(Request::post("/").header(COOKIE, &pass)).await.is_in());
    assert_eq!(place.room.status().admitted, admitted);

    // Until it expires.
    place.clock.advance(seconds(900));
    let (one, two) = (place.get(&pass).await, place.get(&pass).await);
    assert!(one.is_in() && !two.is_in(), "the room is empty, so that one enters again");
    assert!(two.json()["lost"].as_str().unwrap().contains("expired"), "{}", two.body);
}

#[tokio::test(start_paused = true)]
async fn a_header_serves_clients_without_cookies() {
    let place = Place::new("6/min", |room| room);
    place.send(Request::get("/")).await;
    let ticket = place.send(Request::get("/")).await.json()["ticket"].as_str().unwrap().to_owned();
    place.clock.advance(seconds(10));
    let turn = place.send(Request::get("/").header("x-waiting-room-ticket", &ticket)).await;
    assert!(turn.is_in());
    let pass = turn.field("x-waiting-room-ticket").to_owned();
    assert!(place.send(Request::delete("/").header("x-waiting-room-ticket", pass)).await.is_in());
}

#[tokio::test(start_paused = true)]
async fn only_a_get_takes_a_place() {
    let place = Place::new("6/min", |room| room);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::HEAD] {
        let answer = place.send(Request::builder().method(method).uri("/").header(ACCEPT, BROWSER)).await;
        assert_eq!(answer.json()["reason"], "enter-first");
        assert_eq!(answer.field("set-cookie"), "");
    }
    assert_eq!((place.room.status().waiting, place.room.status().admitted), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_is_not_good_gets_a_new_place_at_the_end_and_is_told_why() {
    let place = Place::new("6/min", |room| room);
    place.send(Request::get("/")).await;
    let ticket = place.get("").await.cookie();
    let other = Place::new("6/min", |room| room.secrets([9; 32], None));
    other.send(Request::get("/")).await;
    let forged = other.get("").await.cookie();
    let mut changed = ticket.clone();
    changed.replace_range(40..41, if &ticket[40..41] == "A" { "B" } else { "A" });
    let tickets = [
        (forged.as_str(), "not signed by this service"),
        (&changed, "not signed by this service"),
        ("__Host-room-sale=abc", "cannot be read"),
        ("__Host-room-sale=", "cannot be read"),
    ];
    for (position, (cookie, why)) in (2_u64..).zip(tickets) {
        let answer = place.get(cookie).await;
        assert_eq!(answer.json()["position"], position, "{cookie}");
        assert!(answer.json()["lost"].as_str().unwrap().contains(why), "{}", answer.body);
        assert!(answer.cookie().len() > 60);
    }
    // The room of another name signs with the same secret, and its ticket is none here.
    let builder = WaitingRoom::builder("other", "6/min").clock(place.clock.clone()).secrets(SECRET, None);
    let elsewhere = Place { room: builder.build(MemoryLine::new()).unwrap(), clock: place.clock.clone() };
    elsewhere.send(Request::get("/")).await;
    let renamed = elsewhere.get("").await.cookie().replace("room-other", "room-sale");
    assert!(place.get(&renamed).await.json()["lost"].as_str().unwrap().contains("another room"));
    // A good one among them still counts.
    assert_eq!(place.get(&format!("{renamed}; {ticket}")).await.json()["position"], 1);
}

#[tokio::test(start_paused = true)]
async fn tickets_of_the_former_secret_stay_good_and_are_signed_anew_when_they_are_shown() {
    let old = Place::new("6/min", |room| room);
    old.send(Request::get("/")).await;
    old.clock.advance(seconds(10));
    let pass = old.get("").await.cookie();
    let new = Place::new("6/min", |room| room.secrets([1; 32], Some(SECRET)));
    let newest = Place::new("6/min", |room| room.secrets([1; 32], None));
    for place in [&new, &newest] {
        place.clock.advance(seconds(11));
    }
    let shown = new.get(&pass).await;
    assert!(shown.is_in() && new.room.status().admitted == 0);
    // For as long as it would have lasted.
    assert!(shown.field("set-cookie").contains("Max-Age=899;"), "{}", shown.field("set-cookie"));
    let renewed = shown.cookie();
    assert!(newest.get(&renewed).await.is_in() && newest.room.status().admitted == 0);
    assert_eq!(new.get(&renewed).await.field("set-cookie"), "", "once is enough");

    // The ticket of a place that the same line keeps, as it does in Redis: here it is one that the line knows by its lot.
    let waiting = new.get("").await;
    assert!(waiting.is_in(), "the room is empty");
    let waiting = new.get("").await;
    let place = waiting.json()["ticket"].as_str().unwrap().to_owned();
    let signed_before = resigned(&place, SECRET);
    let again = new.get(&format!("__Host-room-sale={signed_before}")).await;
    assert_eq!((&again.json()["position"], &again.json()["lost"]), (&1.into(), &Value::Null));
    let ticket = again.json()["ticket"].as_str().unwrap().to_owned();
    assert!(ticket != signed_before && again.cookie().ends_with(&ticket), "{}", again.body);
    assert_eq!(new.get(&again.cookie()).await.field("set-cookie"), "");
}

/// The same ticket, signed by another secret.
fn resigned(ticket: &str, secret: &[u8]) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut bytes = URL_SAFE_NO_PAD.decode(ticket).unwrap();
    let key = blake3::derive_key("sluicegate 2026-11-22 tickets of waiting rooms", secret);
    let signed = bytes.len() - blake3::OUT_LEN;
    let signature = blake3::keyed_hash(&key, &bytes[..signed]);
    bytes[signed..].copy_from_slice(signature.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_a_handler_ends_is_worth_nothing_from_then_on() {
    let place = Place::new("6/min", |room| room.most_active(1));
    let pass = place.get("").await.cookie();
    let next = place.get("").await;
    assert!(!next.is_in());
    place.clock.advance(seconds(30));
    let paid = place.send(Request::get("/paid").header(COOKIE, &pass)).await;
    assert!(paid.is_in() && paid.field("set-cookie").contains("Max-Age=0"), "{}", paid.field("set-cookie"));
    assert_eq!(place.room.status().active, Some(0));
    assert!(place.get(&next.cookie()).await.is_in());
    let again = place.get(&pass).await;
    assert!(!again.is_in(), "a copy of the pass that has ended");
}

/// A pass once was whoever's that showed it: one cookie let a hundred in where one might be inside.
#[tokio::test(start_paused = true)]
async fn a_ticket_and_a_pass_are_worth_nothing_in_the_hands_of_another_client() {
    let clients = |room: WaitingRoomBuilder| room.places_per_client(2, HeaderKey::new("x-account").unwrap());
    let place = Place::new("6/min", |room| clients(room).most_active(2));
    let of =
        |account: &str, cookie: &str| Request::get("/").header("x-account", account).header(COOKIE, cookie);
    let pass = place.send(of("ada", "")).await.cookie();
    let ticket = place.send(of("ada", "")).await.cookie();
    for _ in 0..3 {
        assert!(place.send(of("ada", &pass)).await.is_in());
    }
    for (shown, position) in [(&pass, 2), (&ticket, 3)] {
        let copy = place.send(of("bob", shown)).await;
        assert_eq!(copy.json()["position"], position, "a place of its own, at the end: {}", copy.body);
        assert_eq!(copy.json()["lost"], "This is a new place: the ticket is another client's.");
    }
    let post = Request::post("/").header("x-account", "bob").header(COOKIE, &pass);
    assert_eq!(place.send(post).await.json()["reason"], "enter-first");
    let nobodys = place.send(Request::post("/").header(COOKIE, &pass)).await;
    assert_eq!(nobodys.json()["reason"], "enter-first", "who has no key is no other client");
    // Neither does the turn of a copied ticket come to another client, also not within the minute in which it is given again.
    place.clock.advance(seconds(10));
    assert!(place.send(of("ada", &ticket)).await.is_in());
    assert!(!place.send(of("bob", &ticket)).await.is_in());

    // Another secret signs the same client's anew.
    let new = Place::new("6/min", |room| clients(room).secrets([1; 32], Some(SECRET)));
    new.clock.advance(seconds(10));
    assert_eq!(
        new.send(Request::post("/").header("x-account", "bob").header(COOKIE, &pass)).await.head.status,
        503
    );
    let renewed = new.send(of("ada", &pass)).await;
    assert!(renewed.is_in() && new.room.status().admitted == 0, "{}", renewed.body);
    let newest = Place::new("6/min", |room| clients(room).secrets([1; 32], None));
    newest.clock.advance(seconds(11));
    assert!(newest.send(of("ada", &renewed.cookie())).await.is_in() && newest.room.status().admitted == 0);
    // A room that did not know clients before lets those in that it has let in.
    let before = Place::new("6/min", |room| room);
    let unbound = before.send(of("ada", "")).await.cookie();
    assert!(place.send(of("bob", &unbound)).await.is_in());
}

#[tokio::test(start_paused = true)]
async fn a_visitor_that_hangs_up_while_it_is_held_keeps_its_turn() {
    let place = Place::new("6/min", |room| room);
    place.send(Request::get("/")).await;
    let ticket = place.get("").await.cookie();
    place.clock.advance(Duration::from_millis(8_500));
    let held = tokio::time::timeout(Duration::from_millis(100), place.get(&ticket)).await;
    assert!(held.is_err());
    assert!(place.get(&ticket).await.is_in());
    assert_eq!(place.room.status().admitted, 2);
}

#[tokio::test(start_paused = true)]
async fn a_paused_room_and_one_that_is_not_open_say_so_on_a_page_of_ones_own() {
    let opens = std::time::SystemTime::UNIX_EPOCH + START + seconds(100);
    let page = |reply: &Reply<'_>| format!("{} {:?}", reply.reason().word(), reply.position());
    let place = Place::new("6/min", |room| room.opens_at(opens).page(page));
    let browser = || Request::get("/").header("sec-fetch-mode", "navigate");
    assert_eq!(place.send(browser()).await.body, "not-open None");
    place.clock.advance(seconds(100));
    place.room.set_mode(LineMode::Paused).await.unwrap();
    assert_eq!(place.send(browser()).await.body, "paused Some(2)");
    place.room.set_mode(LineMode::Open).await.unwrap();
    assert!(place.send(browser()).await.is_in());
    assert!(place.room.set_rate("0/s").await.unwrap_err().to_string().contains("the limit is 0"));
}

/// Rooms once were in no metric, unless the application called `measure`.
#[cfg(feature = "metrics")]
#[tokio::test]
async fn a_room_exports_its_numbers_while_requests_come() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let place = Place::new("1/s", |room| room);
    for _ in 0..2 {
        place.get("").await;
        place.clock.advance(Duration::from_secs(1));
    }
    let exported = recorder.handle().render();
    assert!(exported.contains(r#"waiting_room_admitted_total{room="sale"} 1"#), "{exported}");
}
