//! The programs of the pages that serve until they are stopped, each as it stands there, over a socket.

use std::error::Error;
use std::net::{SocketAddr, TcpStream};
use std::{env, fs, thread};

use http::StatusCode;
use sluicegate::MemoryStore;
use sluicegate_tests::log::Log;
use sluicegate_tests::servers::{Server, eventually, free_port};

use super::pasted::{getting_started, operating, readme, redis};
use super::{ADDRESS, REDIS, RULES, yaml_under};
use crate::support::{Client, field};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Runs a program on a port, with this Redis and this file of rules, until this process ends.
fn run(main: fn() -> Result<(), Box<dyn Error>>, redis: &'static str, rules: &'static str) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    thread::spawn(move || {
        ADDRESS.set(address.to_string().leak());
        REDIS.set(redis);
        RULES.set(rules);
        main().expect("the program runs");
    });
    eventually("the program serves", || TcpStream::connect(address).is_ok());
    address
}

/// Sends this many requests, which pass, and one more, which is refused.
async fn refuses_after(passes: usize, client: &mut Client, path: &str) {
    for number in 0..passes {
        assert_eq!(client.get(path).await.status(), OK, "number {number} to {path}");
    }
    assert_eq!(client.get(path).await.status(), REFUSED, "{path}");
}

#[tokio::test]
async fn the_sixth_hello_of_the_readme_is_refused_and_says_how_long_to_wait() {
    let mut client = Client::connect(run(readme::sluicegate::main, "", "")).await;
    refuses_after(5, &mut client, "/").await;
    let wait: u64 = field(&client.get("/").await, "retry-after").parse().unwrap();
    assert!((1..=12).contains(&wait), "{wait}");
}

#[tokio::test]
async fn each_route_has_its_limit_and_all_have_one() {
    let program = getting_started::a_limit_for_each_route_and_one_for_all::main;
    let mut client = Client::connect(run(program, "", "")).await;
    for _ in 0..5 {
        let response = client.post("/login").await;
        assert_eq!((response.status(), field(&response, "x-ratelimit-limit")), (OK, "5"));
    }
    let refused = client.post("/login").await;
    assert_eq!(refused.status(), REFUSED);
    assert_eq!(field(&refused, "ratelimit-policy"), r#""api";q=200;w=60, "login";q=5;w=60"#);
    for _ in 0..20 {
        assert_eq!(client.get("/search").await.status(), OK);
    }
    for _ in 0..300 {
        assert_eq!(client.get("/health").await.status(), OK);
    }
}

#[tokio::test]
async fn two_instances_on_one_redis_share_the_limit() {
    let server = Server::start();
    let url: &'static str = server.url().leak();
    let mut first = Client::connect(run(redis::opening::main, url, "")).await;
    let mut second = Client::connect(run(redis::opening::main, url, "")).await;
    for _ in 0..3 {
        assert_eq!(first.get("/").await.status(), OK);
    }
    refuses_after(2, &mut second, "/").await;
    assert_eq!(first.get("/").await.status(), REFUSED);
    // The policy of the README is the same one.
    REDIS.set(url);
    let hello = readme::what_to_choose::hello().await.unwrap();
    for number in 0..7 {
        assert_eq!(hello.check("ada").await.unwrap().is_allowed(), number < 5, "number {number}");
    }
}

#[tokio::test]
async fn the_status_page_shows_what_its_program_refuses() {
    let mut client = Client::connect(run(operating::metrics_and_the_status_page::main, "", "")).await;
    refuses_after(5, &mut client, "/").await;
    let page = client.get("/status").await;
    assert_eq!(page.status(), OK);
    assert!(String::from_utf8_lossy(page.body()).contains("hello"));
}

#[tokio::test]
async fn limits_in_a_file_change_while_the_program_runs() {
    let page = include_str!("../../../crates/sluicegate/docs/operating.md");
    let rules = yaml_under(page, "# Limits in a file");
    let file = env::temp_dir().join(format!("sluicegate-recipe-{}.yaml", std::process::id()));
    fs::write(&file, rules).unwrap();
    let name: &'static str = file.display().to_string().leak();
    let mut client = Client::connect(run(operating::limits_in_a_file::main, "", name)).await;
    for _ in 0..5 {
        assert_eq!(client.post("/login").await.status(), OK);
    }
    assert_eq!(client.post("/login").await.status(), REFUSED);
    refuses_after(10, &mut client, "/").await;

    fs::write(&file, rules.replace("20/min burst 10", "1000/s")).unwrap();
    while client.get("/").await.status() == REFUSED {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.post("/login").await.status(), REFUSED, "its own limit is as it was");
    fs::remove_file(file).unwrap();
}

#[test]
fn a_span_declares_the_fields_that_a_layer_records() {
    let _log = Log::of_this_thread();
    let span = operating::traces::span(&http::Request::new(()));
    for field in ["outcome", "policy", "remaining", "decided_by", "wait_ms"] {
        assert!(span.has_field(format!("rate_limit.{field}").as_str()), "{field}");
    }
}

#[tokio::test]
async fn ten_exports_of_a_key_run_at_once() {
    let exports = redis::requests_in_flight::exports(&MemoryStore::new()).unwrap();
    let held: Vec<_> = (0..12).filter_map(|_| exports.try_acquire("ada").ok()).collect();
    assert_eq!(held.len(), 10);
}
