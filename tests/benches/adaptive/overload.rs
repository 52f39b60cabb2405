//! The service, and clients that send at a pace of their own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::{StatusCode, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::cpu::CpuTime;

/// Requests that the service works on at once, such as the connections of a database pool.
pub(crate) const WORKERS: usize = 16;

/// Milliseconds that a request is worked on: from the first to the sum of both.
const WORK: (u64, u64) = (20, 40);

/// Four times the requests that the workers can bear.
const PER_SECOND: f64 = 4.0 * WORKERS as f64 * 1_000.0 / 40.0;

/// A client goes away after this time.
const PATIENCE: Duration = Duration::from_millis(400);

/// A server on a thread of its own, and its clients.
pub(crate) struct Overload {
    uri: Uri,
    cpu: CpuTime,
    clients: Runtime,
}

/// What came of the requests of a round.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    /// Answered by the service before the client went away.
    pub(crate) good_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Microseconds of the server on a CPU for each good answer, refusals among them.
    pub(crate) cpu_us: f64,
}

struct Pool {
    workers: Semaphore,
    requests: AtomicU64,
}

impl Overload {
    /// Serves this route behind a limit.
    pub(crate) fn new(limited: impl FnOnce(Router) -> Router) -> Self {
        let pool = Pool { workers: Semaphore::new(WORKERS), requests: AtomicU64::new(0) };
        let app = limited(Router::new().route("/", get(work)).with_state(Arc::new(pool)));
        let (says, address) = mpsc::channel();
        let cpu = CpuTime::of(move || match runtime().block_on(serve(app, says)) {});
        let address: SocketAddr = address.recv().expect("the server listens");
        let uri = format!("http://{address}/").parse().expect("it is a URI");
        Self { uri, cpu, clients: runtime() }
    }

    /// Sends for so long, and waits for all answers.
    pub(crate) fn round(&self, length: Duration) -> Round {
        let (cpu, began) = (self.cpu.us(), Instant::now());
        let mut took_ms = self.clients.block_on(self.send(length));
        took_ms.sort_by(f64::total_cmp);
        let at = |percent| took_ms.get(took_ms.len() * percent / 100).copied().unwrap_or(f64::NAN);
        let good = took_ms.len() as f64;
        Round {
            good_per_second: good / began.elapsed().as_secs_f64(),
            p50_ms: at(50),
            p99_ms: at(99),
            cpu_us: (self.cpu.us() - cpu) / good,
        }
    }

    /// The milliseconds of all good answers.
    async fn send(&self, length: Duration) -> Vec<f64> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let (began, mut sent, mut answers) = (Instant::now(), 0_u32, JoinSet::new());
        while began.elapsed() < length {
            while f64::from(sent) < began.elapsed().as_secs_f64() * PER_SECOND {
                let (client, uri) = (client.clone(), self.uri.clone());
                answers.spawn(async move {
                    let start = Instant::now();
                    let answer = async {
                        let response = client.get(uri).await.ok()?;
                        let is_good = response.status() == StatusCode::OK;
                        response.into_body().collect().await.ok().filter(|_| is_good)
                    };
                    let answer = tokio::time::timeout(PATIENCE, answer).await.ok().flatten();
                    answer.map(|_| start.elapsed().as_secs_f64() * 1e3)
                });
                sent += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        answers.join_all().await.into_iter().flatten().collect()
    }
}

async fn work(State(pool): State<Arc<Pool>>) -> &'static str {
    let _worker = pool.workers.acquire().await;
    let more = pool.requests.fetch_add(1, Ordering::Relaxed) * 17 % (WORK.1 + 1);
    tokio::time::sleep(Duration::from_millis(WORK.0 + more)).await;
    "done"
}

async fn serve(app: Router, says: mpsc::Sender<SocketAddr>) -> Infallible {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a loopback interface");
    says.send(listener.local_addr().expect("a bound socket has an address")).expect("it is waited for");
    axum::serve(listener, app).await.expect("axum serves until the process ends");
    unreachable!("axum serves until the process ends")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the runtime starts")
}
