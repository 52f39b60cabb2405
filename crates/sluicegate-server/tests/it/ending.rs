//! The end of a server: it answers what it has, and gives turns back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_tests::memory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{RULES, Served, by_name};

#[tokio::test]
async fn a_server_that_ends_gives_waiting_turns_back_and_closes() {
    let store: Arc<dyn Store> = MemoryStore::new().into();
    let rules = by_name(Arc::clone(&store), &RULES.replace("100/s burst 1", "20/min burst 1"));
    let mut served = Served::of(rules, memory::store().1, |builder| builder).await;
    let turns = store.limiters().get("turns").unwrap();
    let reserve = json!({ "policy": "turns", "key": "ada", "wait": "20s" });
    assert_eq!(served.ask("/v1/reserve", reserve.clone()).await.status, 200);
    let waiting = served.post("/v1/reserve", &reserve).send();
    let stopping = async {
        while turns.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let waiting = tokio::spawn(waiting);
    stopping.await;
    served.stop();
    let answered = waiting.await.unwrap().unwrap();
    assert_eq!(answered.status(), 503);
    assert!(answered.text().await.unwrap().contains("the turn was given back"));
    assert_eq!(served.ended().await, 0);
    assert!(turns.store().limiters().turns_returned(Duration::from_secs(10)).await);
    let wait = turns.peek("ada").await.unwrap().retry_after().unwrap();
    assert!(wait <= Duration::from_secs(3), "the turn of the first alone counts: {wait:?}");
}

#[tokio::test]
async fn a_connection_that_does_not_end_is_cut_off_in_time() {
    let mut served = Served::with(RULES, |builder| builder.drain(Duration::from_millis(50))).await;
    let mut stuck = TcpStream::connect(served.address).await.unwrap();
    let head = b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    stuck.write_all(head).await.unwrap();
    // It reads the body already.
    let mut begin = [0; 12];
    stuck.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 100");
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    idle.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    idle.read_exact(&mut begin).await.unwrap();
    served.stop();
    assert_eq!(served.ended().await, 1, "the idle one has ended by itself");
}
