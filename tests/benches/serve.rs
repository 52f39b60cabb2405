//! `sluicegate serve` beside a tonic service that answers OK without deciding, and beside limitador's library behind the same service.
//!
//! limitador is here without its Redis storage, which would bring another version of the Redis client with OpenSSL.

mod harness;
mod serving;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use limitador::limit::{Context, Limit};
use sluicegate::rules::{Descriptor, Descriptors, Rules, RulesFile, Variables};
use sluicegate::{MemoryStore, Resilient};
use sluicegate_redis::RedisStore;
use sluicegate_server::Server;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::harness::{Aim, Bench, Row};
use crate::serving::{Callers, KEYS, Load, Round, Serving, request};

const RULES: &str = r#"
version: 1
policies:
  address: { quota: 1000000/s }
rules:
  - { name: address, only_if: { domain: edge, descriptor: [{ remote_address: "*" }] }, limit: address, key: client }
"#;

const UNARY: Load = Load::Grpc { connections: 16, streams: 1 };
const STREAMED: Load = Load::Grpc { connections: 4, streams: 32 };
const SINGLE: Load = Load::Http { connections: 16, checks: 1 };
const BATCH: Load = Load::Http { connections: 4, checks: 100 };

fn main() -> ExitCode {
    let mut bench = Bench::from_args("sluicegate serve; the reference is said in each row");
    decisions(&mut bench);
    let (ours, plain, limitador) = (memory(), tonic(Plain), tonic(Limitador::new()));
    for (load, name) in [(UNARY, "gRPC, 16 connections"), (STREAMED, "gRPC, 4 connections of 32 streams")] {
        compare(&mut bench, load, (name, "answering OK"), (&ours.1, &plain), [Aim::Ratio(1.15), Aim::None]);
        compare(
            &mut bench,
            load,
            (name, "limitador"),
            (&ours.1, &limitador),
            [Aim::None, Aim::RatioAtLeast(1.5)],
        );
    }
    let http = bare_http();
    compare(
        &mut bench,
        SINGLE,
        ("HTTP, 16 connections", "a handler that answers"),
        (&ours.0, &http),
        [Aim::None; 2],
    );
    compare(
        &mut bench,
        BATCH,
        ("HTTP, batches of 100", "a handler that answers"),
        (&ours.0, &http),
        [Aim::None; 2],
    );
    if bench.wants("Redis") && !bench.is_smoke() {
        let redis = sluicegate_tests::servers::Server::start();
        let (_, on_redis) = on_redis(redis.url());
        for (load, name) in
            [(UNARY, "Redis, gRPC, 16 connections"), (STREAMED, "Redis, gRPC, 4 connections of 32 streams")]
        {
            compare(&mut bench, load, (name, "answering OK"), (&on_redis, &plain), [Aim::None; 2]);
        }
    }
    bench.finish()
}

/// The decision alone, without a server around it.
fn decisions(bench: &mut Bench) {
    let rules = Rules::new(MemoryStore::new(), file()).expect("memory keeps all");
    let (limits, limitador) = (rules.limits(), Limitador::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
    let (mut ours, mut theirs) = (0, 0);
    bench.compare(
        "a descriptor, decided in memory; limitador",
        Aim::Ratio(1.0 / 1.5),
        |times| {
            runtime.block_on(async {
                for _ in 0..times {
                    ours += 1;
                    let RateLimitRequest { domain, descriptors, .. } = request(ours);
                    let descriptors = descriptors.into_iter().map(|descriptor| {
                        Descriptor::new(descriptor.entries.into_iter().map(|entry| (entry.key, entry.value)))
                    });
                    for request in Descriptors::new(domain, descriptors).requests() {
                        black_box(limits.decide(&request).await.is_ok());
                    }
                }
            });
        },
        |times| {
            for _ in 0..times {
                theirs += 1;
                black_box(limitador.is_allowed(request(theirs)));
            }
        },
    );
}

/// Decisions a second, and CPU per decision.
fn compare(
    bench: &mut Bench,
    load: Load,
    (name, beside): (&str, &str),
    (ours, reference): (&Serving, &Serving),
    [of_cpu, of_rate]: [Aim; 2],
) {
    let (cpu, rate) = (format!("{name}; {beside}: CPU"), format!("{name}; {beside}: decisions"));
    if !bench.wants(&cpu) && !bench.wants(&rate) {
        return;
    }
    let (rounds, slice) = bench.rounds();
    let (callers, slice) = (Callers::new(), slice.max(Duration::from_millis(20)));
    // Warm, and full of keys.
    ours.round(&callers, load, slice);
    reference.round(&callers, load, slice);
    let (mut our, mut their): (Vec<Round>, Vec<Round>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our.push(ours.round(&callers, load, slice));
        their.push(reference.round(&callers, load, slice));
    }
    let of = |rounds: &[Round], value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    let cpu_of = |rounds| of(rounds, |round| round.cpu_us);
    bench.record(Row::of_rounds(&cpu, "us", &cpu_of(&our), &cpu_of(&their), of_cpu));
    let rate_of = |rounds| of(rounds, |round| round.decisions_per_second);
    bench.record(Row::of_rounds(&rate, "a second", &rate_of(&our), &rate_of(&their), of_rate));
}

fn file() -> RulesFile {
    RulesFile::parse("rules.yaml", RULES, &Variables::none()).expect("the rules are good")
}

/// The HTTP and the gRPC listener of one server with a store in memory.
fn memory() -> (Serving, Serving) {
    let serve = || async { Rules::builder().open_all_policies().put(MemoryStore::new(), file()) };
    pair(serve)
}

fn on_redis(url: String) -> (Serving, Serving) {
    pair(move || async move {
        let redis = RedisStore::connect(&url).expect("it is a URL");
        Rules::builder().open_all_policies().put(Resilient::new(&redis), file())
    })
}

fn pair<F>(rules: impl FnOnce() -> F + Send + 'static) -> (Serving, Serving)
where
    F: Future<Output = Result<Rules, sluicegate::rules::RulesError>>,
{
    let (grpc_says, grpc) = mpsc::channel();
    let http = Serving::start(move |says| async move {
        let free: SocketAddr = ([127, 0, 0, 1], 0).into();
        let rules = rules().await.expect("the store keeps all");
        let server = Server::builder(rules).http(free).grpc(free).bind().await.expect("a port is free");
        says.send(server.http_address()).expect("it is waited for");
        grpc_says.send(server.grpc_address()).expect("it is waited for");
        server.run(pending()).await;
        pending().await
    });
    let address = grpc.recv().ok().flatten().expect("it listens");
    let grpc = http.at(address);
    (http, grpc)
}

/// A service behind the server that tonic has.
fn tonic(service: impl RateLimitService) -> Serving {
    Serving::start(|says: mpsc::Sender<SocketAddr>| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        says.send(listener.local_addr().expect("it is bound")).expect("it is waited for");
        let server = tonic::transport::Server::builder().tcp_nodelay(true);
        let router = { server }.add_service(RateLimitServiceServer::new(service));
        router.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("it serves");
        pending::<Infallible>().await
    })
}

/// A handler that reads a body and answers as if it had decided.
fn bare_http() -> Serving {
    Serving::start(|says: mpsc::Sender<SocketAddr>| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        says.send(listener.local_addr().expect("it is bound")).expect("it is waited for");
        let app = Router::new().route(
            "/v1/check",
            post(|body: axum::body::Bytes| async move {
                black_box(body.len());
                r#"{"allowed":true}"#
            }),
        );
        axum::serve(listener, app).await.expect("it serves");
        pending::<Infallible>().await
    })
}

/// Answers without deciding, with as many statuses as there are descriptors.
struct Plain;

#[tonic::async_trait]
impl RateLimitService for Plain {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(answer(&request.into_inner(), Code::Ok)))
    }
}

/// limitador's library, used as its own server uses it.
struct Limitador(limitador::RateLimiter);

impl Limitador {
    fn new() -> Self {
        let limiter = limitador::RateLimiter::new(KEYS as u64 * 2);
        let condition = "descriptors[0].remote_address != ''".try_into().expect("it is a condition");
        let variable = "descriptors[0].remote_address".try_into().expect("it is a variable");
        limiter.add_limit(Limit::new("edge", 1_000_000_000, 1, vec![condition], vec![variable]));
        Self(limiter)
    }

    fn is_allowed(&self, request: RateLimitRequest) -> bool {
        let values = request.descriptors.into_iter().map(|descriptor| {
            descriptor.entries.into_iter().map(|entry| (entry.key, entry.value)).collect::<HashMap<_, _>>()
        });
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), values.collect());
        let checked = self.0.check_rate_limited_and_update(&request.domain.into(), &context, 1);
        !checked.expect("memory answers").limited
    }
}

#[tonic::async_trait]
impl RateLimitService for Limitador {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let answer = |code| answer(&request, code);
        let response =
            if self.is_allowed(request.clone()) { answer(Code::Ok) } else { answer(Code::OverLimit) };
        Ok(Response::new(response))
    }
}

fn answer(request: &RateLimitRequest, code: Code) -> RateLimitResponse {
    let status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    let statuses = vec![status; request.descriptors.len()];
    RateLimitResponse { overall_code: code.into(), statuses, ..RateLimitResponse::default() }
}
