//! The waiting room over sockets: a flash sale with real clients, and its page in a browser.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use http::header::{COOKIE, RETRY_AFTER, SET_COOKIE};
use http::{Method, Request, StatusCode};
use sluicegate::overflow::line::MemoryLine;
use sluicegate::overflow::{WaitingRoom, WaitingRoomLayer};
use sluicegate_tests::random::Random;
use tokio::task::JoinSet;

use crate::browser::Page;
use crate::http::{Client, serve};

const RATE: u32 = 200;
const VISITORS: u32 = 2_000;

/// Who entered when, by the number that visitors send.
type Entries = Arc<Mutex<Vec<(u32, Instant)>>>;

fn shop(room: &WaitingRoom, entries: &Entries) -> Router {
    let entries = Arc::clone(entries);
    let enter = async move |fields: HeaderMap| {
        let number = fields.get("x-visitor").and_then(|number| number.to_str().ok()?.parse().ok());
        if let Some(number) = number {
            entries.lock().unwrap().push((number, Instant::now()));
        }
        "the shop"
    };
    Router::new().route("/", get(enter)).layer(WaitingRoomLayer::new(room.clone()))
}

/// What became of a visitor.
struct Visit {
    number: u32,
    leaves: bool,
    polls: usize,
    /// When it asked first, on a connection that was there.
    came: Instant,
}

async fn visit(server: SocketAddr, number: u32, leaves: bool) -> Visit {
    let mut cookie = String::new();
    let mut client = Client::connect(server).await;
    let came = Instant::now();
    for polls in 1..100 {
        let request = Request::builder().method(Method::GET).uri("/").header("x-visitor", number);
        let response = client.begin_with(request.header(COOKIE, &cookie), "").await;
        if response.status() == StatusCode::OK || leaves {
            return Visit { number, leaves, polls, came };
        }
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        if let Some(set) = response.headers().get(SET_COOKIE) {
            cookie = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        }
        let seconds = response.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    panic!("visitor {number} asked a hundred times");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flash_sale_lets_in_at_the_rate_in_order_and_uses_the_places_of_those_who_leave() {
    let room = WaitingRoom::builder("sale", format!("{RATE}/s")).build(MemoryLine::new()).unwrap();
    let entries = Entries::default();
    let server = serve(shop(&room, &entries)).await;
    let mut random = Random::new(15);
    let mut visitors = JoinSet::new();
    for number in 0..VISITORS {
        visitors.spawn(visit(server, number, random.below(5) == 0));
        if number % 20 == 19 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut visits = visitors.join_all().await;

    let entries = entries.lock().unwrap();
    let entered: HashMap<u32, Instant> = entries.iter().copied().collect();
    let lost = visits.iter().filter(|visit| !visit.leaves && !entered.contains_key(&visit.number)).count();
    assert_eq!(lost, 0);

    let took = entries.last().unwrap().1 - entries[0].1;
    let exact = Duration::from_secs(1) / RATE * (u32::try_from(entries.len()).unwrap() - 1);
    visits.sort_by_key(|visit| visit.came);
    let (mut latest, mut overtaken) = (entries[0].1, Vec::new());
    for at in visits.iter().filter_map(|visit| entered.get(&visit.number)) {
        overtaken.push(latest.saturating_duration_since(*at));
        latest = latest.max(*at);
    }
    overtaken.sort_unstable();
    let overtaken = overtaken[overtaken.len() * 99 / 100];
    let polls: usize = visits.iter().map(|visit| visit.polls).sum();
    println!(
        "{} entered in {took:?}, at the rate {exact:?}; overtaken by {overtaken:?}; {polls} polls",
        entries.len()
    );
    // A hundredth, and what a busy machine takes to wake up a task.
    assert!(took <= exact + exact / 100 + Duration::from_millis(150), "{took:?} for {exact:?}");
    assert!(took >= exact - exact / 100, "{took:?} for {exact:?}");
    // A second by appointments in whole seconds; and another because the first visitors are told their turns before it is known how many
    // leave. Of a hundred, one may have been late by itself: its connection lost a packet.
    assert!(overtaken <= Duration::from_secs(2), "{overtaken:?}");
    assert!(polls <= 3 * VISITORS as usize, "{polls}");
}

/// The number that the page shows as the visitor's place.
async fn position(page: &mut Page) -> u64 {
    let text = page.text().await;
    let after = text.split("Your place").nth(1).unwrap_or_else(|| panic!("{text}"));
    after.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_page_waits_moves_up_and_is_let_in_without_scripts() {
    let room = WaitingRoom::builder("sale", "2/s").build(MemoryLine::new()).unwrap();
    let server = serve(shop(&room, &Entries::default())).await;
    let mut page = Page::new("waiting-room").await;
    let mut others = JoinSet::new();
    for _ in 0..30 {
        others.spawn(async move { Client::connect(server).await.get("/").await.status() });
    }
    others.join_all().await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    let url = format!("http://{server}/");
    assert_eq!(page.open(&url).await, 503);
    let first = position(&mut page).await;
    assert!((15..=30).contains(&first), "{first}");
    page.picture("waiting-room-390").await;
    assert_eq!(page.value_of("document.documentElement.scrollWidth <= innerWidth").await, true);
    page.looks(1_440, "dark").await;
    page.picture("waiting-room-1440-dark").await;

    // Nobody touches it from here on.
    let mut positions = vec![first];
    while page.loaded().await == 503 {
        positions.push(position(&mut page).await);
    }
    assert!(positions.len() > 1 && positions.is_sorted_by(|before, after| before > after), "{positions:?}");
    assert_eq!(page.text().await, "the shop");
    page.picture("waiting-room-in").await;
}
