//! A server that a test starts, and what callers send to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_observed::Observed;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_server::{Server, ServerBuilder};
use sluicegate_tests::log::Log;
use sluicegate_tests::memory;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::document;

/// Policies by name, and two rules.
pub(crate) const RULES: &str = "
version: 1
policies:
  login: { quota: 5/min burst 2 }
  mail: { quota: 10/h }
  turns: { quota: 100/s burst 1 }
  shown: { quota: 3/min, hidden: true }
  tried: { quota: 1/h, mode: shadow }
deny:
  - { name: inside, only_if: { path: /internal/* } }
exempt:
  - { name: health, only_if: { path: /health } }
rules:
  - { name: login, only_if: { path: /login, method: POST }, limit: login, key: client }
  - { name: member, only_if: { path: /members/* }, limit: mail, key: header(x-user), on_missing_key: 401 }
  - { name: try, only_if: { path: /login }, limit: tried, key: client }
";

/// A server under test.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) rules: Rules,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    run: JoinHandle<usize>,
}

pub(crate) fn parse(text: &str) -> RulesFile {
    RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap()
}

/// These rules on a store, with callers who name policies.
pub(crate) fn by_name(store: impl Into<Arc<dyn Store>>, text: &str) -> Rules {
    Rules::builder().open_all_policies().put(store, parse(text)).unwrap()
}

/// The store, observed under a name of its own in this process.
pub(crate) fn observed(store: MemoryStore) -> Observed {
    static STORES: AtomicUsize = AtomicUsize::new(0);
    Observed::named(format!("memory-{}", STORES.fetch_add(1, Ordering::Relaxed)), store).unwrap()
}

impl Served {
    /// These rules on a store of their own.
    pub(crate) async fn with(text: &str, settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let (store, clock) = memory::store();
        let observed = observed(store);
        let rules = by_name(&observed, text);
        Self::of(rules, clock, |builder| settings(builder.status(&observed))).await
    }

    pub(crate) async fn of(
        rules: Rules,
        clock: ManualClock,
        settings: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let builder = Server::builder(rules.clone()).http(free).grpc(free);
        let server = settings(builder).bind().await.unwrap();
        let (address, grpc) = (server.http_address(), server.grpc_address().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let run = tokio::spawn(server.run(async move { _ = stopped.await }));
        Self { address, grpc, clock, rules, client: Client::new(), stop: Some(stop), run }
    }

    pub(crate) async fn start() -> Self {
        Self::with(RULES, |builder| builder).await
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address))
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.client.request(method.parse().unwrap(), format!("http://{}{path}", self.address))
    }

    pub(crate) fn post(&self, path: &str, call: &Value) -> RequestBuilder {
        self.client.post(format!("http://{}{path}", self.address)).json(call)
    }

    /// Sends a request whose body says that it is of this type.
    pub(crate) async fn send_as(&self, mut request: reqwest::Request, media: &'static str) -> Answered {
        request.headers_mut().insert("content-type", http::HeaderValue::from_static(media));
        Answered::of(self.client.execute(request).await.unwrap()).await
    }

    /// Asks a call, and checks it and what is answered against the document.
    pub(crate) async fn ask(&self, path: &str, call: Value) -> Answered {
        let answered = Answered::of(self.post(path, &call).send().await.unwrap()).await;
        document::agrees(path, &call, answered.status);
        document::allows_answer(path, &answered);
        answered
    }

    /// Tells the server to end.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until it has ended, and says how many connections were cut off.
    pub(crate) async fn ended(self) -> usize {
        self.run.await.unwrap()
    }
}

/// What a caller gets.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Answered {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// What is said of a mistake.
    pub(crate) fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap_or_default()
    }

    pub(crate) fn receipt(&self) -> &str {
        self.body["receipt"].as_str().unwrap_or_else(|| panic!("there is a receipt in {self:?}"))
    }

    /// What is left under the first limit.
    pub(crate) fn remaining(&self) -> u64 {
        self.body["limits"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("there is a limit in {self:?}"))
    }
}

/// Asks at least so often, and claims that each of these lines is written, and at most once a second. A line belongs to the process:
/// another test may have written the one of this second.
pub(crate) async fn assert_rare(log: &Log, lines: &[&str], least: u32, mut ask: impl AsyncFnMut()) {
    let began = Instant::now();
    let written = |said: &str| log.lines().into_iter().filter(|line| line.contains(said)).count() as u64;
    let mut asked = 0;
    while asked < least || (lines.iter().any(|said| written(said) == 0) && asked < 20_000) {
        asked += 1;
        ask().await;
    }
    for said in lines {
        let written = written(said);
        assert!((1..=began.elapsed().as_secs() + 1).contains(&written), "{said}: {written} lines");
    }
}
