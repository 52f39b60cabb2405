//! The waiting room over sockets: a flash sale with real clients, and its page in a browser.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use bytes::Bytes;
use http::header::{COOKIE, RETRY_AFTER, SET_COOKIE};
use http::request::Builder;
use http::{Request, Response, StatusCode};
use sluicegate::PeerIp;
use sluicegate::overflow::line::MemoryLine;
use sluicegate::overflow::{WaitingRoom, WaitingRoomLayer};
use sluicegate_tests::random::Random;
use sluicegate_tests::time::Lateness;
use tokio::task::JoinSet;

use crate::operate::browser::Page;
use crate::support::{Client, serve, whole};

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

/// Connections that are kept: a visitor holds one only while it asks, so that a crowd has fewer sockets than visitors.
struct Connections {
    server: SocketAddr,
    free: Mutex<Vec<Client>>,
    opened: AtomicUsize,
}

impl Connections {
    fn to(server: SocketAddr) -> Arc<Self> {
        Arc::new(Self { server, free: Mutex::default(), opened: AtomicUsize::default() })
    }

    async fn take(&self) -> Client {
        let free = self.free.lock().unwrap().pop();
        match free {
            Some(client) => client,
            None => {
                // Relaxed: it is a count.
                self.opened.fetch_add(1, Ordering::Relaxed);
                Client::connect(self.server).await
            }
        }
    }

    async fn send(&self, mut client: Client, request: Builder) -> Response<Bytes> {
        let response = whole(client.begin_with(request, "").await).await;
        self.free.lock().unwrap().push(client);
        response
    }
}

async fn visit(connections: Arc<Connections>, number: u32, leaves: bool) -> Visit {
    let mut cookie = String::new();
    let mut came = None;
    for polls in 1..100 {
        let client = connections.take().await;
        let came = *came.get_or_insert_with(Instant::now);
        let request = Request::get("/").header("x-visitor", number).header(COOKIE, &cookie);
        let response = connections.send(client, request).await;
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

/// A sale to so many visitors, of whom a fifth leaves after its first poll.
async fn flash_sale(count: u32, rate: u32) {
    let room = WaitingRoom::builder("sale", format!("{rate}/s")).build(MemoryLine::new()).unwrap();
    let (entries, lateness) = (Entries::default(), Lateness::watch());
    let connections = Connections::to(serve(shop(&room, &entries)).await);
    let mut random = Random::new(15);
    let mut visitors = JoinSet::new();
    // Five of them for each turn, or as many as the machine can take.
    let begun = Instant::now();
    for number in 0..count {
        visitors.spawn(visit(Arc::clone(&connections), number, random.below(5) == 0));
        if number % 20 == 19 {
            let due = Duration::from_secs_f64(f64::from(number + 1) / f64::from(rate) / 5.0);
            tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
        }
    }
    let mut visits = visitors.join_all().await;

    let entries = entries.lock().unwrap();
    let entered: HashMap<u32, Instant> = entries.iter().copied().collect();
    let lost = visits.iter().filter(|visit| !visit.leaves && !entered.contains_key(&visit.number)).count();
    assert_eq!(lost, 0);

    let drift = |turns: usize| {
        let took = entries[turns - 1].1 - entries[0].1;
        let exact = Duration::from_secs(1) / rate * (u32::try_from(turns).unwrap() - 1);
        (took, exact)
    };
    let (took, exact) = drift(entries.len());
    visits.sort_by_key(|visit| visit.came);
    let (mut latest, mut overtaken) = (entries[0].1, Vec::new());
    for at in visits.iter().filter_map(|visit| entered.get(&visit.number)) {
        overtaken.push(latest.saturating_duration_since(*at));
        latest = latest.max(*at);
    }
    overtaken.sort_unstable();
    let [most, overtaken] = [100, 99].map(|part| overtaken[(overtaken.len() - 1) * part / 100]);
    let polls: usize = visits.iter().map(|visit| visit.polls).sum();
    let tenths: Vec<i128> = (1..=10)
        .map(|part| drift(entries.len() * part / 10))
        .map(|(took, exact)| took.as_micros() as i128 - exact.as_micros() as i128)
        .collect();
    println!(
        "{} of {count} entered in {took:?}, at {rate}/s {exact:?}: {:+.2} %; late by us after each tenth {tenths:?}; \
         overtaken by {overtaken:?}, at most {most:?}; {polls} polls over {} connections",
        entries.len(),
        (took.as_secs_f64() / exact.as_secs_f64() - 1.0) * 100.0,
        connections.opened.load(Ordering::Relaxed),
    );
    // What a busy machine takes to wake up a task.
    let late = Duration::from_millis(50) + 4 * lateness.longest();
    // A hundredth. Turns are lost only before enough visitors are there to take them.
    assert!(took <= exact + exact / 100 + late, "{took:?} for {exact:?}");
    assert!(took + late >= exact - exact / 100, "{took:?} for {exact:?}");
    // A second by appointments in whole seconds. Of a hundred, one may have been late by itself.
    assert!(overtaken <= Duration::from_millis(1_450) + late, "{overtaken:?}");
    assert!(polls <= 3 * count as usize, "{polls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flash_sale_lets_in_at_the_rate_in_order_and_uses_the_places_of_those_who_leave() {
    // As many as a busy machine serves in a build for tests; 10000 and 1000 are for a machine that has nothing else to do.
    let of = |name: &str, usual| std::env::var(name).map_or(usual, |number| number.parse().unwrap());
    flash_sale(of("SLUICEGATE_SALE_VISITORS", 1_000), of("SLUICEGATE_SALE_RATE", 100)).await;
}

/// One cookie on a hundred connections once was a hundred visitors, of whom one might be inside.
#[tokio::test]
async fn a_pass_that_is_handed_to_a_hundred_clients_lets_none_of_them_in() {
    let room = WaitingRoom::builder("sale", "100/s").most_active(1).places_per_client(2, PeerIp::new());
    let room = room.build(MemoryLine::new()).unwrap();
    let server = serve(shop(&room, &Entries::default())).await;
    let mut buyer = Client::connect(server).await;
    let first = buyer.get("/").await;
    assert_eq!(first.status(), StatusCode::OK);
    let pass = first.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let mut others = JoinSet::new();
    for number in 1..=100 {
        let pass = pass.clone();
        others.spawn(async move {
            let mut other = Client::connect_from([127, 0, 1, number], server).await;
            whole(other.begin_with(Request::get("/").header(COOKIE, pass), "").await).await.status()
        });
    }
    let let_in = others.join_all().await.into_iter().filter(|status| *status == StatusCode::OK).count();
    assert_eq!((let_in, room.status().active), (0, Some(1)));
    let again = whole(buyer.begin_with(Request::get("/").header(COOKIE, pass), "").await).await;
    assert_eq!(again.status(), StatusCode::OK);
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
    for _ in 0..40 {
        others.spawn(async move { Client::connect(server).await.get("/").await.status() });
    }
    others.join_all().await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    let url = format!("http://{server}/");
    assert_eq!(page.open(&url).await, 503);
    let first = position(&mut page).await;
    assert!((2..=40).contains(&first), "{first}");
    page.picture("waiting-room-390").await;
    assert_eq!(page.value_of("document.documentElement.scrollWidth <= innerWidth").await, true);
    page.looks(1_440, "dark").await;
    page.picture("waiting-room-1440-dark").await;

    // Nobody touches it from here on. The others stay away, so at this rate its next look would be its turn.
    room.set_rate("1/s").await.unwrap();
    let mut positions = vec![first];
    while page.loaded().await == 503 {
        positions.push(position(&mut page).await);
    }
    assert!(positions.len() > 1 && positions.is_sorted_by(|before, after| before > after), "{positions:?}");
    assert_eq!(page.text().await, "the shop");
    page.picture("waiting-room-in").await;
}
