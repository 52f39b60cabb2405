//! Budgets whose cost the caller learns from the response, and states to the server.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http_body::Body;
use reqwest::Client;
use serde_json::{Value, json};
use sluicegate_tests::frames::{Framed, Frames};
use sluicegate_tests::servers::Server;
use sluicegate_tests::streams::{BUDGET, play, stream};

use crate::serve::crowd::client;
use crate::serve::processes::Sluicegate;

const RULES: &str = "
version: 1
policies: { tokens: { algorithm: fixed-window, quota: 10000/365d } }
rules: [{ name: all, limit: tokens, key: header(x-user), cost: 500 }]
";

/// Receipts to be settled, each with its cost.
type Due = Arc<Mutex<Vec<(String, u64)>>>;

/// A stream that a caller of the server passes on: when it ends, its receipt is due.
struct Metered {
    frames: Frames,
    passed: usize,
    has_ended: bool,
    pays_seen: bool,
    cost: u64,
    receipt: String,
    due: Due,
}

impl Body for Metered {
    type Data = bytes::Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Framed>> {
        let frame = ready!(Pin::new(&mut self.frames).poll_frame(cx));
        match &frame {
            Some(_) => self.passed += 1,
            None => self.has_ended = true,
        }
        Poll::Ready(frame)
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        // The second event tells the cost.
        if self.has_ended || (self.pays_seen && self.passed > 1) {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.push((std::mem::take(&mut self.receipt), self.cost));
        }
    }
}

async fn streams_are_admitted_as_counted_by_hand(seed: u64, pays_seen: bool, options: &[&str]) {
    let served = Sluicegate::serve(RULES, options);
    let (client, http): (Client, _) = (client(1), served.http);
    let due = Due::default();
    let ask = async |path: &str, call: Value| {
        let answer = client.post(format!("http://{http}{path}")).json(&call).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let send = async |cost| {
        let request = json!({ "path": "/", "headers": { "x-user": "ada" } });
        let (status, answer) = ask("/v1/reserve", json!({ "request": request })).await;
        (status == 200).then(|| Metered {
            frames: stream(cost),
            passed: 0,
            has_ended: false,
            pays_seen,
            cost,
            receipt: answer["receipt"].as_str().unwrap().to_owned(),
            due: Arc::clone(&due),
        })
    };
    let used = async |_| {
        let settled = std::mem::take(&mut *due.lock().unwrap());
        for (receipt, actual) in settled {
            let (status, answer) = ask("/v1/settle", json!({ "receipt": receipt, "actual": actual })).await;
            assert_eq!(status, 200, "{answer}");
        }
        let (_, answer) = ask("/v1/peek", json!({ "policy": "tokens", "key": "ada" })).await;
        BUDGET - answer["limits"][0]["remaining"].as_u64().unwrap()
    };
    play(seed, pays_seen, send, used).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_a_caller_settles_are_admitted_as_counted_by_hand() {
    let redis = Server::start();
    let url = redis.url();
    for (seed, options) in [(0, &[][..]), (1, &["--store", &url])] {
        for (seed, pays_seen) in [(seed, false), (seed + 2, true)] {
            // The counts in Redis are those of all servers.
            let _: () = redis.run("FLUSHALL");
            streams_are_admitted_as_counted_by_hand(seed, pays_seen, options).await;
        }
    }
}
