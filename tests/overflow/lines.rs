//! The line of a waiting room in Redis: the same as in memory, for several instances, and through a crash of the server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::overflow::line::{
    Line, LineAnswer, LineAsk, LineChange, LineHome, LineMode, LinePlace, LineSettings, MemoryLine, RedisLine,
};
use sluicegate::overflow::{WaitingRoom, WaitingRoomBuilder, WaitingRoomLayer};
use sluicegate::{ConfigError, PeerIp, Quota, RedisStore};
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::persistent::Persistent;
use sluicegate_tests::servers::{Server, eventually};
use sluicegate_tests::time::{START, on_the_hour};
use tower::{Layer, ServiceExt, service_fn};

use crate::overflow::support::store;

async fn store_by(url: &str, clock: &ManualClock) -> RedisStore {
    let store =
        RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(5)).connect(url).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    store
}

/// A home that opens one line in each of several homes, and hands all of them out.
struct Each(Vec<RedisStore>, Arc<Mutex<Vec<Arc<dyn Line>>>>);

impl LineHome for Each {
    fn open(&self, settings: LineSettings, clock: Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError> {
        let memory = MemoryLine::new().open(settings.clone(), Arc::clone(&clock))?;
        let mut lines = vec![Arc::clone(&memory)];
        for store in &self.0 {
            lines.push(RedisLine::new(store).open(settings.clone(), Arc::clone(&clock))?);
        }
        self.1.lock().unwrap().extend(lines);
        Ok(memory)
    }
}

/// The line of a room in memory, and four instances of it in Redis.
pub(crate) async fn lines(
    server: &Server,
    clock: &ManualClock,
    room: WaitingRoomBuilder,
) -> Vec<Arc<dyn Line>> {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(store_by(&server.url(), clock).await);
    }
    let lines = Arc::default();
    room.clock(clock.clone()).build(Each(stores, Arc::clone(&lines))).unwrap();
    lines.lock().unwrap().clone()
}

#[test]
fn a_line_is_kept_in_view_by_the_runtime_that_asks_after_its_own_has_ended() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = Server::start();
    let rooms = runtime().block_on(async {
        let (one, other) = (store(&server.url()).await, store(&server.url()).await);
        [one, other].map(|store| WaitingRoom::builder("sale", "1/h").build(RedisLine::new(&store)).unwrap())
    });
    runtime().block_on(async {
        rooms[0].set_rate("1/min").await.unwrap();
        eventually("each instance knows it", || {
            rooms.iter().all(|room| room.status().rate == Quota::per_minute(1).burst(1))
        });
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_that_left_count_no_more_though_nobody_asks() {
    let (server, clock) = (Server::start(), on_the_hour());
    let all =
        lines(&server, &clock, WaitingRoom::builder("sale", "1/s").places_per_client(50, PeerIp::new()))
            .await;
    for line in &all[..2] {
        for lot in 0..20 {
            line.ask(LineAsk::new(None, lot << 27).of_client(7)).await.unwrap();
        }
    }
    let counts = |line: &Arc<dyn Line>| (line.status().waiting, line.status().passed_over);
    let waited = counts(&all[0]);
    assert!(waited.0 >= 17, "{waited:?}");
    eventually("each instance knows them", || all.iter().all(|line| counts(line) == waited));
    clock.advance(Duration::from_secs(75));
    assert_eq!(counts(&all[0]), (0, waited.0));
    eventually("and that they are gone", || all.iter().all(|line| counts(line) == (0, waited.0)));
    // One of them comes back, and the others are passed over for good.
    assert!(all[3].status().wait.is_some_and(|wait| wait < Duration::from_secs(2)));
    for line in &all[..2] {
        let LineAnswer::Turn(turn) = line.ask(LineAsk::new(None, 0)).await.unwrap() else {
            panic!("nobody is before it")
        };
        assert_eq!(turn.place.number, 20);
    }
}

fn place_of(answer: &LineAnswer) -> Option<LinePlace> {
    match answer {
        LineAnswer::Waiting(standing) => Some(standing.place),
        LineAnswer::Turn(turn) => Some(turn.place),
        _ => None,
    }
}

/// Plays the same polls in both homes, in Redis each of them on any of the four instances.
async fn same_answers(
    name: &str,
    rates: [&str; 3],
    seed: u64,
    build: impl Fn(WaitingRoomBuilder) -> WaitingRoomBuilder,
) {
    let (server, clock, mut random) = (Server::start(), on_the_hour(), Random::new(seed));
    let all = lines(&server, &clock, build(WaitingRoom::builder("sale", rates[0]))).await;
    let (memory, mut places, mut kinds) = (&all[0], Vec::<LinePlace>::new(), [0_u32; 3]);
    // The time of a line in Redis begins with its first poll.
    for line in &all[..2] {
        line.ask(LineAsk::new(None, 1)).await.unwrap();
    }
    for step in 0..1_500 {
        let redis = &all[1 + random.index(4)];
        let known = (!places.is_empty()).then(|| places[random.index(places.len())]);
        match random.below(200) {
            0..=1 => {
                let rate: Quota = rates[random.index(3)].parse().unwrap();
                for line in [memory, redis] {
                    line.change(LineChange::Rate(rate.burst(1))).await.unwrap();
                }
                // Memory is not asked for its status, which would sweep more than a poll does.
                assert_eq!(redis.status().rate, rate.burst(1));
            }
            2..=3 => {
                let mode =
                    [LineMode::Metered, LineMode::Metered, LineMode::Paused, LineMode::Open][random.index(4)];
                for line in [memory, redis] {
                    line.change(LineChange::Mode(mode)).await.unwrap();
                }
                assert_eq!(redis.status().mode, mode);
            }
            4..=8 => {
                let Some(place) = known else { continue };
                for line in [memory, redis] {
                    line.end(place).await.unwrap();
                }
                // In Redis, the look at its numbers that was under way may be older than the clock of this test.
                assert!(memory.has_ended(place));
            }
            9..=60 => {
                let most_us =
                    [300_000, 300_000, 4_000_000, 4_000_000, 70_000_000, 700_000_000][random.index(6)];
                clock.advance(Duration::from_micros(random.below(most_us)));
            }
            61 => clock.set(START + Duration::from_micros(random.below(1_000_000_000))),
            kind => {
                // Some are new, most come again, and a few show a place that never was.
                let place = match kind {
                    62..=110 => None,
                    111..=113 => Some(LinePlace::new(random.below(2_000), 7)),
                    _ => known,
                };
                let ask = LineAsk::new(place, u32::try_from(random.below(1 << 32)).unwrap());
                let ask = ask.of_client(random.below(30));
                let (expected, found) = (memory.ask(ask).await.unwrap(), redis.ask(ask).await.unwrap());
                assert_eq!(found, expected, "{name}, seed {seed}, step {step}: {ask:?}");
                places.extend(place_of(&found));
                kinds[match found {
                    LineAnswer::Waiting(_) => 0,
                    LineAnswer::Turn(_) => 1,
                    _ => 2,
                }] += 1;
            }
        }
    }
    assert!(kinds[0] > 20 && kinds[1] > 20, "{name}: {kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_polls_get_the_same_answers_in_memory_and_from_four_instances_on_one_redis() {
    let fast = ["5/s", "40/s", "1000/s"];
    for seed in 1..=3 {
        same_answers("plain", fast, seed, |room| room).await;
        same_answers("slow", ["6/min", "7919/30d", "100/min"], seed, |room| room).await;
        same_answers("few passes", fast, seed, |room| {
            room.most_active(20).pass_lasts(Duration::from_secs(60))
        })
        .await;
        same_answers("many passes", fast, seed, |room| {
            room.most_active(200).pass_lasts(Duration::from_secs(60))
        })
        .await;
        same_answers("opens later", fast, seed, |room| {
            room.opens_at(std::time::UNIX_EPOCH + START + Duration::from_secs(30))
        })
        .await;
        same_answers("bounded", fast, seed, |room| room.longest_line(60).places_per_client(3, PeerIp::new()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_redis_begins_a_new_line_and_every_visitor_gets_a_new_place_in_it() {
    let (server, clock) = (Server::start(), on_the_hour());
    let all = lines(&server, &clock, WaitingRoom::builder("sale", "1/s")).await;
    let mut places = Vec::new();
    for lot in 0..10 {
        places.push(place_of(&all[1].ask(LineAsk::new(None, lot)).await.unwrap()).unwrap());
    }
    clock.advance(Duration::from_secs(1));
    all[2].end(places[0]).await.unwrap();
    all[2].change(LineChange::Mode(LineMode::Metered)).await.unwrap();
    eventually("each instance knows the pass", || all[1..].iter().all(|line| line.has_ended(places[0])));
    server.run::<()>("FLUSHALL");
    for (index, place) in places.iter().rev().enumerate() {
        let answer = all[1 + index % 4].ask(LineAsk::new(Some(*place), 100)).await.unwrap();
        let new = place_of(&answer).unwrap();
        assert_eq!((new.number, new.lot), (index as u64, 100), "in the order in which they come back");
    }
    eventually("each instance knows the new line, and no pass of the old one", || {
        all[1..].iter().all(|line| line.status().waiting == 7 && !line.has_ended(places[0]))
    });
}

/// Each poll of a visitor without a ticket once left a place and a pass in Redis.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_room_keeps_nothing_of_visitors_in_redis_and_both_homes_count_the_same_passes_afterwards() {
    let (server, clock) = (Server::start(), on_the_hour());
    let room = WaitingRoom::builder("sale", "1/h").most_active(100).places_per_client(5, PeerIp::new());
    let all = lines(&server, &clock, room).await;
    let same = async |ask: LineAsk| {
        let (expected, found) = (all[0].ask(ask).await.unwrap(), all[1].ask(ask).await.unwrap());
        assert_eq!(found, expected, "{ask:?}");
        found
    };
    let mode = async |mode| {
        for line in &all[..2] {
            line.change(LineChange::Mode(mode)).await.unwrap();
        }
    };
    same(LineAsk::new(None, 1)).await;
    let LineAnswer::Waiting(sleeper) = same(LineAsk::new(None, 2)).await else { panic!("it has to wait") };
    mode(LineMode::Open).await;
    for visitor in 0..1_000_u32 {
        let ask = LineAsk::new(None, visitor).of_client(u64::from(visitor) + 1);
        assert!(matches!(same(ask).await, LineAnswer::Turn(_)));
    }
    let count = |command: &str, part: &str| {
        let keys: Vec<String> = server.run(&format!("KEYS *:{part}"));
        keys.iter().map(|key| server.run::<u64>(&format!("{command} {key}"))).sum::<u64>()
    };
    let kept = [("HLEN", "places"), ("HLEN", "clients"), ("ZCARD", "ends"), ("SCARD", "out")];
    assert_eq!(kept.map(|(command, part)| count(command, part)), [2, 0, 100, 100]);
    // More passes expire at once than one poll forgets.
    mode(LineMode::Metered).await;
    clock.advance(Duration::from_secs(950));
    for visitor in 0..5 {
        same(LineAsk::new(None, 5_000 + visitor)).await;
        same(LineAsk::new(Some(sleeper.place), 0)).await;
        clock.advance(Duration::from_secs(1));
    }
    clock.advance(Duration::from_secs(3_600));
    assert!(matches!(same(LineAsk::new(Some(sleeper.place), 0)).await, LineAnswer::Turn(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_visitor_takes_at_most_300_bytes_of_redis_and_one_call() {
    let (server, clock) = (Server::start(), on_the_hour());
    let all =
        lines(&server, &clock, WaitingRoom::builder("sale", "10/s").places_per_client(5, PeerIp::new()))
            .await;
    let calls = || {
        let info: String = server.run("INFO commandstats");
        let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap().to_owned();
        let numbers = line.split(['=', ',']).filter_map(|part| part.parse::<f64>().ok()).collect::<Vec<_>>();
        (numbers[0], numbers[1])
    };
    let used = || {
        let info: String = server.run("INFO memory");
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().to_owned();
        line.trim().parse::<u64>().unwrap()
    };
    let (before, (first, first_us)) = (used(), calls());
    for visitor in 0..10_000_u64 {
        let ask = LineAsk::new(None, u32::try_from(visitor).unwrap()).of_client(visitor | 1 << 60);
        assert!(place_of(&all[1].ask(ask).await.unwrap()).is_some());
    }
    let (last, last_us) = calls();
    let keys: Vec<String> = server.run("KEYS *");
    let of = |key: &String| server.run::<u64>(&format!("MEMORY USAGE {key} SAMPLES 0"));
    let each = keys.iter().filter(|key| key.contains(":room:")).map(of).sum::<u64>() as f64 / 10_000.0;
    let grown = (used() - before) as f64 / 10_000.0;
    println!(
        "{each:.0} bytes a visitor by MEMORY USAGE, {grown:.0} of Redis' memory; {:.1} us a poll",
        (last_us - first_us) / (last - first)
    );
    assert!(each <= 300.0 && grown <= 300.0, "{each} {grown}");
    // Beside the polls, each of four instances looks at the numbers once a second.
    assert!((10_000.0..10_400.0).contains(&(last - first)), "{} calls", last - first);
    let is_kept = |key: &String| {
        let left = server.run::<i64>(&format!("PTTL {key}"));
        assert!(left > 0, "{key} stays for ever");
        left > 80_000_000
    };
    let keys: Vec<_> = keys.into_iter().filter(|key| key.contains(":room:")).collect();
    assert!(keys.iter().all(is_kept));
    // All of them stay while there are polls, which need not write them.
    for key in &keys {
        server.run::<()>(&format!("PEXPIRE {key} 1000000"));
    }
    clock.advance(Duration::from_secs(61));
    all[1].ask(LineAsk::new(Some(LinePlace::new(9_999, 9_999)), 0)).await.unwrap();
    assert!(keys.iter().all(is_kept));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_instance_changes_and_ends_all_know_within_seconds() {
    let (server, clock) = (Server::start(), on_the_hour());
    let all = lines(&server, &clock, WaitingRoom::builder("sale", "10/s")).await;
    let place = place_of(&all[1].ask(LineAsk::new(None, 1)).await.unwrap()).unwrap();
    all[2].change(LineChange::Rate("7/s".parse().unwrap())).await.unwrap();
    all[2].change(LineChange::Mode(LineMode::Paused)).await.unwrap();
    all[2].end(place).await.unwrap();
    eventually("all instances know it", || {
        all[1..].iter().all(|line| {
            let status = line.status();
            let is_known = (status.rate.limit(), status.mode, status.admitted) == (7, LineMode::Paused, 1);
            is_known && line.has_ended(place)
        })
    });
    // An instance with another rate in its settings joins, and changes nothing.
    let joined = lines(&server, &clock, WaitingRoom::builder("sale", "99/s")).await;
    let LineAnswer::Waiting(standing) = joined[4].ask(LineAsk::new(None, 2)).await.unwrap() else { panic!() };
    assert_eq!((standing.place.number, standing.wait), (1, None));
    eventually("it learns the rate", || joined[4].status().rate.limit() == 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_that_the_script_cannot_count_exactly_is_refused() {
    let server = Server::start();
    let home = || async { RedisLine::new(&store(&server.url()).await) };
    assert!(WaitingRoom::builder("sale", "7919/30d").build(home().await).is_ok());
    let error = WaitingRoom::builder("sale", "999983/365d").build(home().await).unwrap_err().to_string();
    assert!(error.contains("999983/365d") && error.contains("cannot count"), "{error}");
}

/// The rights that a text lists.
fn rights(text: &str) -> Vec<&str> {
    let words = text.split([' ', '\n', '`']).filter(|word| word.starts_with('+') && word.len() > 1);
    words.map(|word| word.trim_end_matches('.')).collect()
}

/// The list in the documentation.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_of_a_line_are_enough() {
    let (server, clock) = (Server::start(), on_the_hour());
    let rights = rights(include_str!("../../crates/sluicegate-overflow/src/line/redis/mod.rs"));
    assert_eq!(rights.len(), 14, "{rights:?}");
    let limits = "+eval +evalsha +time +get +set +del";
    server.run::<()>(&format!("ACL SETUSER app on >secret ~rl:* {limits} {}", rights.join(" ")));
    let store = store(&server.url().replace("://", "://app:secret@")).await;
    let found = Arc::default();
    let room = WaitingRoom::builder("sale", "5/s").most_active(10).places_per_client(3, PeerIp::new());
    room.clock(clock.clone()).build(Each(vec![store], Arc::clone(&found))).unwrap();
    let line = Arc::clone(&found.lock().unwrap()[1]);
    let mut places = Vec::new();
    for visitor in 0..40_u32 {
        let ask = LineAsk::new(None, visitor).of_client(visitor.into());
        places.push(place_of(&line.ask(ask).await.unwrap()).unwrap());
    }
    line.end(places[0]).await.unwrap();
    line.change(LineChange::Rate("50/s".parse().unwrap())).await.unwrap();
    for place in places {
        line.ask(LineAsk::new(Some(place), 0)).await.unwrap();
    }
    let refused: Vec<redis::Value> = server.run("ACL LOG");
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn the_page_on_redis_lists_the_same_rights() {
    let page = include_str!("../../crates/sluicegate/docs/redis.md");
    let (_, rest) = page.split_once("A [waiting room]").expect("the page has a part on waiting rooms");
    let (list, _) = rest.split_once("Scripts of your own").expect("the part ends");
    let [mut source, mut page] =
        [include_str!("../../crates/sluicegate-overflow/src/line/redis/mod.rs"), list].map(rights);
    source.sort_unstable();
    page.sort_unstable();
    assert_eq!(page, source);
}

/// A browser asks, with its ticket if it has one.
async fn visit(
    room: &WaitingRoom,
    cookie: Option<&str>,
) -> (StatusCode, Response<()>, String, Option<String>) {
    let shop = service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("shop"))))
    });
    let request = Request::get("/").header("accept", "text/html").header("sec-fetch-mode", "navigate");
    let request = cookie.iter().fold(request, |request, cookie| request.header("cookie", *cookie));
    let service = WaitingRoomLayer::new(room.clone()).layer(shop);
    let (head, body) = service.oneshot(request.body(()).unwrap()).await.unwrap().into_parts();
    let page = body.collect().await.unwrap().to_bytes();
    let cookie = head.headers.get("set-cookie").map(|cookie| cookie.to_str().unwrap());
    let cookie = cookie.map(|cookie| cookie.split(';').next().unwrap().to_owned());
    (head.status, Response::from_parts(head, ()), String::from_utf8(page.to_vec()).unwrap(), cookie)
}

#[tokio::test(flavor = "multi_thread")]
async fn places_survive_a_crash_of_redis_and_visitors_are_told_meanwhile() {
    let mut redis = Persistent::start("always");
    let url = redis.server.url();
    let secret = "the same on both instances";
    let mut rooms = Vec::new();
    for _ in 0..2 {
        let home = RedisLine::new(&store(&url).await);
        rooms.push(WaitingRoom::builder("sale", "1/min").secrets(secret, None).build(home).unwrap());
    }
    assert_eq!(visit(&rooms[0], None).await.0, StatusCode::OK);
    let mut cookies = Vec::new();
    for visitor in 0..20 {
        let (status, _, _, cookie) = visit(&rooms[visitor % 2], None).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        cookies.push(cookie.expect("a ticket"));
    }
    redis.server.stop();
    let (status, answer, page, cookie) = visit(&rooms[0], Some(&cookies[0])).await;
    assert_eq!((status, cookie), (StatusCode::SERVICE_UNAVAILABLE, None));
    assert_eq!(answer.headers()["retry-after"], "5");
    assert!(page.contains("does not answer at the moment. Places that were given are kept."), "{page}");

    redis.server.restart();
    for (visitor, cookie) in cookies.iter().enumerate() {
        let back = async {
            loop {
                let (status, _, page, renewed) = visit(&rooms[(visitor + 1) % 2], Some(cookie)).await;
                if !page.contains("does not answer") {
                    return (status, page, renewed);
                }
                tokio::task::yield_now().await;
            }
        };
        let (status, page, renewed) =
            tokio::time::timeout(Duration::from_secs(20), back).await.expect("it answers again");
        assert_eq!(
            (status, renewed),
            (StatusCode::SERVICE_UNAVAILABLE, None),
            "{visitor} has lost its place"
        );
        assert!(page.contains(&format!("{}", visitor + 1)), "{visitor}: {page}");
    }
}
