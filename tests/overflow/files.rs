//! Waiting rooms of a rules file whose line is in Redis: two instances, each with its file, and reloads from a thread that is on no runtime.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::header::{COOKIE, SET_COOKIE};
use http::{Request, StatusCode};
use serde_json::Value;
use sluicegate::MemoryStore;
use sluicegate::overflow::Rooms;
use sluicegate::overflow::line::RedisLine;
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_tests::servers::{Server, eventually};

use crate::overflow::support::store;
use crate::support::{Client, serve, whole};

fn file(rate: &str) -> RulesFile {
    let text = format!(
        "version: 1
policies: {{ sale: {{ quota: {rate}, on_exceeded: room }} }}
rules: [{{ name: shop, limit: sale, key: client }}]\n"
    );
    RulesFile::parse("rules.yaml", &text, &Variables::none()).unwrap()
}

/// An instance of the shop.
struct Instance {
    rules: Rules,
    rooms: Rooms,
    server: SocketAddr,
}

impl Instance {
    async fn new(redis: &Server, rate: &str) -> Self {
        let rooms = Rooms::new(RedisLine::new(&store(&redis.url()).await));
        let rooms = rooms.secrets("the same on all instances", None);
        let rules = Rules::builder().rooms(rooms.clone()).put(MemoryStore::new(), file(rate)).unwrap();
        let shop = Router::new().route("/", get(async || "the shop")).layer(rules.layer());
        Self { rules, rooms, server: serve(shop).await }
    }

    /// As a file that is followed: by a thread of its own.
    fn reload(&self, rate: &str) -> String {
        let (rules, file) = (self.rules.clone(), file(rate));
        thread::spawn(move || rules.replace(file).unwrap().to_string()).join().unwrap()
    }

    fn rate(&self) -> u64 {
        self.rooms.room("sale").get().unwrap().status().rate.limit()
    }

    /// One poll with this ticket: the new one, and the place, or 0 for a visitor that is in.
    async fn ask(&self, ticket: &str) -> (String, u64) {
        let request = Request::get("/").header(COOKIE, ticket);
        let response = whole(Client::connect(self.server).await.begin_with(request, "").await).await;
        let set =
            response.headers().get(SET_COOKIE).map(|set| set.to_str().unwrap().split(';').next().unwrap());
        let ticket = set.unwrap_or(ticket).to_owned();
        if response.status() == StatusCode::OK {
            return (ticket, 0);
        }
        let told: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(told.get("lost"), None, "{told}");
        (ticket, told["position"].as_u64().unwrap_or_else(|| panic!("{told}")))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_share_the_room_of_a_file_and_a_reload_of_one_changes_the_rate_of_all() {
    let redis = Server::start();
    let (one, other) = (Instance::new(&redis, "1/h").await, Instance::new(&redis, "2/h").await);
    assert_eq!(one.ask("").await.1, 0);
    let mut tickets = Vec::new();
    for place in 1..=4 {
        let (ticket, at) = [&one, &other][place % 2].ask("").await;
        assert_eq!(at, place as u64);
        tickets.push(ticket);
    }
    eventually("the other instance has found the rate of the first", || other.rate() == 1);

    let told = one.reload("5/h");
    assert_eq!(told, "changed sale 1/h -> 5/h, all who wait keep their places");
    eventually("the other instance knows the rate", || other.rate() == 5);
    // The file of the other says what it said, whatever else of it is read again.
    other.reload("2/h");
    for (place, ticket) in (1..).zip(&tickets) {
        assert_eq!(other.ask(ticket).await.1, place);
    }
    assert_eq!(one.rate(), 5);
    other.reload("7/h");
    eventually("the last reload counts", || one.rate() == 7);
    other.reload("5/s");
    eventually("the rate is high enough for a test", || one.rate() == 5);
    let mut left = tickets;
    tokio::time::timeout(Duration::from_secs(30), async {
        while let Some(ticket) = left.first() {
            if one.ask(ticket).await.1 == 0 {
                left.remove(0);
            }
        }
    })
    .await
    .expect("all enter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_while_redis_is_away_changes_the_rate_when_it_is_back() {
    let mut redis = Server::start();
    let one = Instance::new(&redis, "1/h").await;
    assert_eq!(one.ask("").await.1, 0);
    let error = one.rules.replace(file("999983/365d")).unwrap_err().to_string();
    assert!(
        error.starts_with("rules.yaml:3:17: error: a line in Redis cannot count 999983/365d burst 1 exactly"),
        "{error}"
    );
    redis.stop();
    assert_eq!(one.reload("5/h"), "changed sale 1/h -> 5/h, all who wait keep their places");
    redis.restart();
    eventually("the rate of the file is in force", || one.rate() == 5);
}
