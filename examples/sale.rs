//! A shop that opens ten seconds after the start, and a crowd in front of it: the page in a browser, the crowd in the terminal.

use std::error::Error;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Html;
use axum::routing::get;
use http::header::{COOKIE, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use sluicegate::ConfigError;
use sluicegate::overflow::line::MemoryLine;
use sluicegate::overflow::{WaitingRoom, WaitingRoomLayer};
use sluicegate_examples::listen;
use tower::ServiceExt;

/// The time from the start to the opening of the shop.
const OPENS_AFTER: Duration = Duration::from_secs(10);

/// The number of visitors; one comes each 50 ms.
const VISITORS: u32 = 400;

/// The room: ten a second are let in, and each may stay for five minutes.
fn room() -> Result<WaitingRoom, ConfigError> {
    WaitingRoom::builder("sale", "10/s")
        .opens_at(SystemTime::now() + OPENS_AFTER)
        .pass_lasts(Duration::from_secs(300))
        .build(MemoryLine::new())
}

/// The shop, behind the room.
fn app(room: &WaitingRoom) -> Router {
    let shop = get(|| async { Html("<!DOCTYPE html><title>Shop</title><h1>You are in the shop</h1>") });
    Router::new().route("/", shop).layer(WaitingRoomLayer::new(room.clone()))
}

/// The ticket in a response, as a browser sends it back.
fn ticket(fields: &HeaderMap) -> Option<HeaderValue> {
    let cookie = fields.get(SET_COOKIE)?.to_str().ok()?;
    HeaderValue::from_str(cookie.split(';').next()?).ok()
}

/// A visitor that asks when it is told to, until it is in the shop. Every fifth visitor leaves silently.
async fn visit(app: Router, number: u32) {
    tokio::time::sleep(Duration::from_millis(50) * number).await;
    let mut kept = HeaderMap::new();
    loop {
        let mut request = Request::new(Body::empty());
        request.headers_mut().clone_from(&kept);
        let Ok(response) = app.clone().oneshot(request).await;
        if response.status() == StatusCode::OK || number.is_multiple_of(5) {
            return;
        }
        if let Some(ticket) = ticket(response.headers()) {
            kept.insert(COOKIE, ticket);
        }
        let seconds = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(5))).await;
    }
}

/// Prints the state of the line until no visitor waits any longer.
async fn watch(room: WaitingRoom) {
    println!("second  waiting  let in  passed over  wait of a newcomer");
    let mut second = tokio::time::interval(Duration::from_secs(1));
    for number in 0.. {
        second.tick().await;
        let now = room.status();
        let wait = now.wait.map_or(0, |wait| wait.as_secs());
        println!(
            "{number:>6}  {:>7}  {:>6}  {:>11}  {wait:>16} s",
            now.waiting, now.admitted, now.passed_over
        );
        if number > 20 && now.waiting == 0 {
            println!("Nobody waits any more.");
            return;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let room = room()?;
    let app = app(&room);
    let listener = listen().await?;
    println!(
        "\
A shop on http://{}, which opens in {} s and lets in ten a second. Open it in a browser; or, without one:

  curl -i -c /tmp/sale -b /tmp/sale http://{0}/

{VISITORS} others come meanwhile, and each fifth of them leaves. Ctrl-C ends it.
",
        listener.local_addr()?,
        OPENS_AFTER.as_secs(),
    );
    for number in 0..VISITORS {
        tokio::spawn(visit(app.clone(), number));
    }
    tokio::spawn(watch(room));
    axum::serve(listener, app).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
    Ok(())
}
