//! Servers that run on one thread, whose time on a CPU the kernel counts, and callers on the other thread.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use crate::harness::cpu::CpuTime;

/// Keys that callers send one after the other.
pub(crate) const KEYS: usize = 10_000;

/// The address of a server, and the time of its thread.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    cpu: CpuTime,
}

/// What a server did in a round.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) decisions_per_second: f64,
    /// Microseconds on a CPU per decision.
    pub(crate) cpu_us: f64,
}

/// What is sent in a round.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// Calls over so many connections, each with so many at once.
    Grpc { connections: usize, streams: usize },
    /// Requests over so many connections, each with so many checks.
    Http { connections: usize, checks: usize },
}

impl Serving {
    /// Starts a server that says its address, and runs until the process ends.
    pub(crate) fn start<F: Future<Output = Infallible>>(
        serve: impl FnOnce(mpsc::Sender<SocketAddr>) -> F + Send + 'static,
    ) -> Self {
        let (says, address) = mpsc::channel();
        let cpu = CpuTime::of(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("the runtime starts");
            match runtime.block_on(serve(says)) {}
        });
        Self { address: address.recv().expect("the server listens"), cpu }
    }

    /// Another address of the same server.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        Self { address, cpu: self.cpu.clone() }
    }

    /// Keeps the server busy for about so long.
    pub(crate) fn round(&self, callers: &Callers, load: Load, length: Duration) -> Round {
        let (cpu, began) = (self.cpu.us(), Instant::now());
        let decisions = callers.0.block_on(load.send(self.address, began + length));
        let decisions = f64::from(decisions);
        let seconds = began.elapsed().as_secs_f64();
        Round { decisions_per_second: decisions / seconds, cpu_us: (self.cpu.us() - cpu) / decisions }
    }
}

/// The thread of the callers.
pub(crate) struct Callers(Runtime);

impl Callers {
    pub(crate) fn new() -> Self {
        Self(Builder::new_current_thread().enable_all().build().expect("the runtime starts"))
    }
}

impl Load {
    /// Sends until then, and returns the number of decisions.
    async fn send(self, address: SocketAddr, until: Instant) -> u32 {
        let mut callers = JoinSet::new();
        match self {
            Self::Grpc { connections, streams } => {
                for connection in 0..connections {
                    let endpoint = Endpoint::new(format!("http://{address}")).expect("it is an address");
                    let channel = endpoint.connect().await.expect("the server listens");
                    for stream in 0..streams {
                        let (client, first) =
                            (RateLimitServiceClient::new(channel.clone()), connection * 997 + stream * 61);
                        callers.spawn(call(client, first, until));
                    }
                }
            }
            Self::Http { connections, checks } => {
                for connection in 0..connections {
                    callers.spawn(post(address, connection * 997, checks, until));
                }
            }
        }
        callers.join_all().await.into_iter().sum()
    }
}

/// The address of a client.
fn address_of(key: usize) -> String {
    format!("10.0.{}.{}", key % KEYS / 100, key % 100)
}

/// The request that Envoy sends for one address.
pub(crate) fn request(key: usize) -> RateLimitRequest {
    let entry = Entry { key: "remote_address".to_owned(), value: address_of(key) };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![descriptor], hits_addend: 1 }
}

async fn call(
    mut client: RateLimitServiceClient<tonic::transport::Channel>,
    first: usize,
    until: Instant,
) -> u32 {
    let mut calls = 0;
    for key in first.. {
        let answer = client.should_rate_limit(request(key)).await.expect("the server answers").into_inner();
        assert_eq!(answer.overall_code, 1, "it is allowed");
        calls += 1;
        if Instant::now() >= until {
            break;
        }
    }
    calls
}

async fn post(address: SocketAddr, first: usize, checks: usize, until: Instant) -> u32 {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket can be without delay");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
    tokio::spawn(connection);
    let mut decisions = 0;
    for number in first.. {
        let check =
            |n: usize| format!(r#"{{"policy":"address","key":"{}"}}"#, address_of(number * checks + n));
        let body = match checks {
            1 => check(0),
            _ => format!(r#"{{"batch":[{}]}}"#, (0..checks).map(check).collect::<Vec<_>>().join(",")),
        };
        let request = http::Request::post("/v1/check")
            .header("host", "localhost")
            .header("content-type", "application/json");
        let request = request.body(Full::new(bytes::Bytes::from(body))).expect("it is a request");
        let response = sender.send_request(request).await.expect("the server answers");
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.expect("the answer is whole");
        decisions += u32::try_from(checks).expect("it is a small number");
        if Instant::now() >= until {
            break;
        }
    }
    decisions
}
