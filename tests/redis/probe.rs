//! When a server counts as found: it runs every script, and says what they must say.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::limiter::check_all;
use sluicegate_core::{Key, Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::{Server, eventually};

use crate::support::connected;

async fn store(server: &Server) -> RedisStore {
    connected(RedisStore::builder().deadline(Duration::from_secs(5)), &server.url()).await
}

/// One call of each script: of each algorithm, and of several in one request.
async fn ask_each_script(store: &RedisStore) {
    let mut limiters = Vec::new();
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let policy = Policy::builder(format!("policy-{index}"), algorithm, "3/min").build().unwrap();
        let limiter = RateLimiter::new(store, policy).unwrap();
        let _ = limiter.peek("ada").await.unwrap();
        let _ = limiter.refund("ada", 1).await.unwrap();
        limiters.push(limiter);
    }
    let ada = Key::from("ada");
    for pair in limiters.windows(2) {
        let _ = check_all([pair[0].check(&ada), pair[1].check(&ada)]).await.unwrap();
    }
}

/// Once the first calls after a restart met a server that did not know the script, and took two round trips.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_has_to_send_a_script_after_the_server_was_started_anew() {
    let mut server = Server::start();
    let store = store(&server).await;
    for _ in 0..2 {
        server.run::<()>("CONFIG RESETSTAT");
        ask_each_script(&store).await;
        let calls: String = server.run("INFO commandstats");
        assert!(calls.contains("cmdstat_evalsha:") && !calls.contains("cmdstat_eval:"), "{calls}");
        server.restart();
        eventually("the connection to the old server is gone", || !store.is_connected());
        store.connected(Duration::from_secs(20)).await.expect("the server is up");
    }
}

/// Once a store without `+evalsha` or `+get` was up, and either no decision was made or all of them from nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_user_lacks_a_right_is_not_up() {
    let server = Server::start();
    for right in ["eval", "evalsha", "time", "get", "set"] {
        server.run::<()>(&format!("ACL SETUSER {right} on >secret ~rl:* +@all -{right}"));
        let store = RedisStore::connect(&format!("redis://{right}:secret@127.0.0.1:{}", server.port()));
        let store = store.unwrap();
        assert!(store.connected(Duration::from_millis(200)).await.is_err(), "without {right}");
        server.run::<()>(&format!("ACL SETUSER {right} +{right}"));
        store.connected(Duration::from_secs(20)).await.expect("nothing is missing now");
    }
}

/// A connection that is not quite one to the server.
#[derive(Clone)]
struct Altered {
    connection: MultiplexedConnection,
    /// What becomes of each reply.
    reply: fn(Value) -> Value,
    /// What is sent after each command.
    after: Option<&'static str>,
}

impl ConnectionLike for Altered {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let reply = self.connection.req_packed_command(command).await?;
            if let Some(after) = self.after {
                self.connection.req_packed_command(&redis::cmd(after)).await?;
            }
            Ok((self.reply)(reply))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

/// Whether a store is up by such a connection within this many milliseconds.
async fn is_up(
    server: &Server,
    reply: fn(Value) -> Value,
    after: Option<&'static str>,
    within_ms: u64,
) -> bool {
    let client = redis::Client::open(server.url()).unwrap();
    let store = RedisStore::builder().connect_with(move || {
        let client = client.clone();
        async move {
            let connection = client.get_multiplexed_async_connection().await?;
            Ok(Altered { connection, reply, after })
        }
    });
    store.unwrap().connected(Duration::from_millis(within_ms)).await.is_ok()
}

/// Once any reply but an error was good enough: such a server was up, and no decision could be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_something_else_is_not_up() {
    let server = Server::start();
    let others: [fn(Value) -> Value; 4] = [
        |_| Value::Okay,
        |_| Value::Nil,
        |_| Value::Array(vec![Value::Int(1), Value::Int(0)]),
        |_| Value::BulkString(b"0123456789abcdef".to_vec()),
    ];
    for other in others {
        assert!(!is_up(&server, other, None, 300).await, "{:?}", other(Value::Nil));
    }
    assert!(is_up(&server, |reply| reply, None, 20_000).await, "it is what it says that is wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_what_the_script_writes_is_not_up() {
    let server = Server::start();
    assert!(!is_up(&server, |reply| reply, Some("FLUSHALL"), 300).await);
    assert!(is_up(&server, |reply| reply, Some("PING"), 20_000).await, "it is the forgetting that is wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_leaves_nothing_behind() {
    let server = Server::start();
    store(&server).await;
    assert!(server.run::<String>("INFO commandstats").contains("cmdstat_eval:"), "the script was run");
    assert_eq!(server.run::<u64>("DBSIZE"), 0);
}
