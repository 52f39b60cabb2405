//! The waiting room over sockets: a flash sale with real clients, and its page in a browser.

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

/// What a visitor saw: how often it asked.
async fn visit(server: std::net::SocketAddr, number: u32, leaves: bool) -> usize {
    let mut cookie = String::new();
    for polls in 1..100 {
        let mut client = Client::connect(server).await;
        let request = Request::builder().method(Method::GET).uri("/").header("x-visitor", number);
        let response = client.begin_with(request.header(COOKIE, &cookie), "").await;
        if response.status() == StatusCode::OK || leaves {
            return polls;
        }
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        if let Some(set) = response.headers().get(SET_COOKIE) {
            cookie = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        }
        let seconds = response.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        drop(client);
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
    let leaving: Vec<bool> = (0..VISITORS).map(|_| random.below(5) == 0).collect();
    let mut visitors = JoinSet::new();
    for (number, leaves) in (0..VISITORS).zip(leaving.clone()) {
        visitors.spawn(visit(server, number, leaves));
        if number % 20 == 19 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut polls = 0;
    while let Some(asked) = visitors.join_next().await {
        polls += asked.unwrap();
    }

    let entries = entries.lock().unwrap();
    let is_in = |number: u32| entries.iter().any(|(entered, _)| *entered == number);
    let lost: Vec<u32> =
        (0..VISITORS).filter(|number| !leaving[*number as usize] && !is_in(*number)).collect();
    assert!(lost.is_empty(), "{lost:?}");

    let took = entries.last().unwrap().1 - entries[0].1;
    let exact = Duration::from_secs(1) / RATE * (u32::try_from(entries.len()).unwrap() - 1);
    // By number: visitors came in that order, give or take some milliseconds.
    let mut by_number = entries.clone();
    by_number.sort_by_key(|(number, _)| *number);
    let (mut latest, mut overtaken) = (by_number[0].1, Duration::ZERO);
    for (_, entered) in by_number {
        overtaken = overtaken.max(latest.saturating_duration_since(entered));
        latest = latest.max(entered);
    }
    println!(
        "{} entered in {took:?}, at the rate {exact:?}; overtaken by {overtaken:?}; {polls} polls",
        entries.len()
    );
    // A hundredth, and what a busy machine takes to wake up a task.
    assert!(took <= exact + exact / 100 + Duration::from_millis(150), "{took:?} for {exact:?}");
    assert!(took >= exact - exact / 100, "{took:?} for {exact:?}");
    // A second by appointments in whole seconds; and another until it is known how many leave, who are told later turns until then.
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
    let room = WaitingRoom::builder("sale", "1/s").build(MemoryLine::new()).unwrap();
    let server = serve(shop(&room, &Entries::default())).await;
    let mut page = Page::new("waiting-room").await;
    let mut others = JoinSet::new();
    for _ in 0..14 {
        others.spawn(async move { Client::connect(server).await.get("/").await.status() });
    }
    others.join_all().await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    let url = format!("http://{server}/");
    assert_eq!(page.open(&url).await, 503);
    let first = position(&mut page).await;
    assert!((5..=14).contains(&first), "{first}");
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
