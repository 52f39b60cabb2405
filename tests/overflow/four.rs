//! A sale on four instances that share one line in Redis, which is killed and comes back while visitors wait.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use http::header::{COOKIE, RETRY_AFTER, SET_COOKIE};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sluicegate::MemoryStore;
use sluicegate::observed::Observed;
use sluicegate::overflow::line::{LineMode, RedisLine};
use sluicegate::overflow::{WaitingRoom, WaitingRoomLayer};
use sluicegate::status::StatusPage;
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::eventually;
use sluicegate_tests::servers::persistent::Persistent;
use sluicegate_tests::time::Lateness;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::overflow::support::store;
use crate::support::{Client, serve};

const INSTANCES: usize = 4;
const RATE: usize = 50;
const VISITORS: usize = 800;

/// A visitor who entered, and when.
type Entries = Arc<Mutex<Vec<(usize, Instant)>>>;

async fn instance(url: &str, entries: &Entries) -> SocketAddr {
    let room = WaitingRoom::builder("sale", format!("{RATE}/s"))
        .secrets("the same on all instances", None)
        .build(RedisLine::new(&store(url).await))
        .unwrap();
    let entries = Arc::clone(entries);
    let enter = async move |fields: HeaderMap| {
        let number = fields["x-visitor"].to_str().unwrap().parse().unwrap();
        entries.lock().unwrap().push((number, Instant::now()));
        "the shop"
    };
    // The room is the layer's from now on.
    serve(Router::new().route("/", get(enter)).layer(WaitingRoomLayer::new(room))).await
}

/// One poll, by a program or by a browser: its status, when to ask again, its new ticket, and the body.
async fn poll(
    server: SocketAddr,
    number: usize,
    cookie: &str,
    accept: &str,
) -> (StatusCode, Option<u64>, Option<String>, String) {
    let mut client = Client::connect(server).await;
    let request =
        Request::get("/").header("x-visitor", number).header("accept", accept).header(COOKIE, cookie);
    let (head, body) = client.begin_with(request, "").await.into_parts();
    let after = head.headers.get(RETRY_AFTER).map(|seconds| seconds.to_str().unwrap().parse().unwrap());
    let ticket = head.headers.get(SET_COOKIE);
    let ticket = ticket.map(|set| set.to_str().unwrap().split(';').next().unwrap().to_owned());
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, after, ticket, String::from_utf8(body.to_vec()).unwrap())
}

/// What a visitor met on its way.
#[derive(Debug)]
struct Visit {
    number: usize,
    came: Instant,
    polls: usize,
    /// When it was last told that Redis is away.
    told_away: Option<Instant>,
    lost: usize,
}

/// Asks another instance each time, as behind a balancer, until it is in.
async fn visit(servers: [SocketAddr; INSTANCES], number: usize) -> Visit {
    let mut random = Random::new(number as u64 + 1);
    let mut cookie = String::new();
    let mut visit = Visit { number, came: Instant::now(), polls: 0, told_away: None, lost: 0 };
    while visit.polls < 100 {
        visit.polls += 1;
        let server = servers[random.index(INSTANCES)];
        let (status, after, ticket, body) = poll(server, number, &cookie, "application/json").await;
        if status == StatusCode::OK {
            return visit;
        }
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        let said: Value = serde_json::from_str(&body).unwrap();
        if said["reason"] == "away" {
            visit.told_away = Some(Instant::now());
        }
        visit.lost += usize::from(said.get("lost").is_some());
        cookie = ticket.unwrap_or(cookie);
        sleep(Duration::from_secs(after.expect("a time to come back at"))).await;
    }
    panic!("{visit:?}");
}

/// While Redis is away each instance says so, to programs and to browsers, and keeps their tickets.
async fn are_told(servers: [SocketAddr; INSTANCES]) {
    for server in servers {
        let (status, after, ticket, body) = poll(server, VISITORS, "", "application/json").await;
        assert_eq!((status, after, ticket), (StatusCode::SERVICE_UNAVAILABLE, Some(5), None));
        assert!(body.contains(r#""reason":"away""#), "{body}");
        let (status, after, ticket, page) = poll(server, VISITORS, "", "text/html").await;
        assert_eq!((status, after, ticket), (StatusCode::SERVICE_UNAVAILABLE, Some(5), None));
        assert!(page.contains("does not answer at the moment. Places that were given are kept."), "{page}");
        assert!(page.contains(r#"http-equiv="refresh" content="5""#), "{page}");
    }
}

/// A sale in the middle of which Redis is killed, and comes back after a while. At most this many places may be lost with it.
async fn survives(fsync: &str, may_lose: usize) {
    let mut redis = Persistent::start(fsync);
    let lateness = Lateness::watch();
    let (url, entries) = (redis.server.url(), Entries::default());
    let mut servers = Vec::new();
    for _ in 0..INSTANCES {
        servers.push(instance(&url, &entries).await);
    }
    let servers: [SocketAddr; INSTANCES] = servers.try_into().unwrap();
    let mut visitors = JoinSet::new();
    for number in 0..VISITORS {
        visitors.spawn(visit(servers, number));
        if number % 10 == 9 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    sleep(Duration::from_secs(2)).await;
    redis.server.signal("KILL");
    let killed = Instant::now();
    sleep(Duration::from_millis(300)).await;
    are_told(servers).await;
    sleep(Duration::from_secs(1)).await;
    redis.server.restart();
    let away = killed.elapsed();
    let mut visits = visitors.join_all().await;

    let entries = entries.lock().unwrap();
    assert_eq!(entries.len(), VISITORS, "each has entered, and once");
    let lost: usize = visits.iter().map(|visit| visit.lost).sum();
    let told: Vec<_> = visits.iter().filter_map(|visit| visit.told_away).collect();
    let last_told = *told.iter().max().expect("the sale went on while Redis was away");
    let mut times: Vec<Instant> = entries.iter().map(|(_, at)| *at).collect();
    times.sort_unstable();
    let shortest = times.windows(3 * RATE + 1).map(|turns| turns[3 * RATE] - turns[0]).min().unwrap();
    // A visitor that was told to come back in five seconds has missed its turn by that, and others take it meanwhile. Once all are back,
    // they enter in the order of their places.
    let back = last_told + Duration::from_secs(7);
    visits.sort_by_key(|visit| visit.came);
    let entered = |visit: &Visit| entries.iter().find(|(number, _)| *number == visit.number).unwrap().1;
    let overtaken_from = |from: Instant| {
        let (mut latest, mut overtaken) = (times[0], Vec::new());
        for at in visits.iter().map(entered).filter(|at| *at >= from) {
            overtaken.push(latest.saturating_duration_since(at));
            latest = latest.max(at);
        }
        overtaken.sort_unstable();
        (overtaken.len(), overtaken[overtaken.len() * 99 / 100])
    };
    let (meanwhile, (later, overtaken)) = (overtaken_from(times[0]).1, overtaken_from(back));
    let polls: usize = visits.iter().map(|visit| visit.polls).sum();
    println!(
        "{fsync}: away for {away:?}, {} of {VISITORS} were told so, {lost} places lost; {} turns took {shortest:?} at least, all {:?}; \
         overtaken by {meanwhile:?}, and {later} that entered later by {overtaken:?}; {polls} polls",
        told.len(),
        3 * RATE + 1,
        times[VISITORS - 1] - times[0],
    );
    assert!(lost <= may_lose, "{lost} places are lost");
    // A turn is held until its time; a task that is woken late enters late, and the time to the next is shorter by that.
    let late = Duration::from_millis(750) + 4 * lateness.longest();
    assert!(shortest + late >= Duration::from_secs(3), "{} turns in {shortest:?}", 3 * RATE + 1);
    assert!(overtaken <= Duration::from_millis(2_500) + late, "{overtaken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn four_instances_keep_order_and_rate_and_every_place_through_a_kill_of_a_redis_that_syncs_always() {
    survives("always", 0).await;
}

/// A killed process has handed its log to the system, unless that was busy with a sync: two seconds of visitors at most.
#[tokio::test(flavor = "multi_thread")]
async fn four_instances_lose_the_places_of_the_last_seconds_at_most_with_a_redis_that_syncs_each_second() {
    survives("everysec", 2 * RATE).await;
}

/// What a program sends to the page of an instance, as an operator.
async fn steer(page: &StatusPage, body: &str) -> (StatusCode, Value) {
    let operator = |request: http::request::Builder| request.header("host", "ops.example.org");
    let look = operator(Request::get("/status.json")).body(String::new()).unwrap();
    let token = page.clone().oneshot(look).await.unwrap().headers()["x-status-token"].clone();
    let request = operator(Request::post("/rooms/sale"))
        .header("origin", "https://ops.example.org")
        .header("content-type", "application/json")
        .header("x-status-token", token);
    let answer = page.clone().oneshot(request.body(body.to_owned()).unwrap()).await.unwrap();
    (answer.status(), serde_json::from_str(answer.body()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_is_steered_from_the_page_of_any_instance_and_without_redis_the_page_says_so() {
    let mut redis = Persistent::start("always");
    let (mut rooms, mut pages) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let home = RedisLine::new(&store(&redis.server.url()).await);
        let room = WaitingRoom::builder("sale", "1/min").secrets("the same on all instances", None);
        let room = room.build(home).unwrap();
        let observed = Observed::named(format!("steered-{number}"), MemoryStore::new()).unwrap();
        let page = StatusPage::new(&observed).room(room.clone()).guard(|_| Some("ada")).secret([7; 32]);
        pages.push(page.origin("https://ops.example.org").build().unwrap());
        rooms.push(room);
    }
    let server = serve(
        Router::new().route("/", get(async || "the shop")).layer(WaitingRoomLayer::new(rooms[0].clone())),
    )
    .await;
    for _ in 0..5 {
        poll(server, 0, "", "application/json").await;
    }
    let (status, room) = steer(&pages[1], r#"{"rate":"2/min","mode":"paused"}"#).await;
    assert_eq!((status, &room["rate"], &room["mode"]), (StatusCode::OK, &"2/min".into(), &"paused".into()));
    assert_eq!((&room["waiting"], &room["wait_seconds"]), (&4.into(), &Value::Null));
    eventually("the other instance knows it", || {
        (rooms[0].status().rate.limit(), rooms[0].status().mode) == (2, LineMode::Paused)
    });
    let (status, told) = steer(&pages[0], r#"{"mode":"metered","seen":"1/min metered"}"#).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(told["error"].as_str().unwrap().contains("is at 2/min paused now"), "{told}");

    redis.server.stop();
    let (status, told) = steer(&pages[0], r#"{"mode":"metered"}"#).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{told}");
    redis.server.restart();
    let (status, room) = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let answer = steer(&pages[0], r#"{"mode":"metered"}"#).await;
            if answer.0 != StatusCode::SERVICE_UNAVAILABLE {
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("it answers again");
    assert_eq!(
        (status, &room["rate"], &room["waiting"]),
        (StatusCode::OK, &"2/min".into(), &4.into()),
        "{room}"
    );
}
