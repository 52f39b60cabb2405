//! Envoy's rate limit service: descriptors, hits, limits, statuses and header fields.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use prost::Message as _;
use prost::bytes::BufMut as _;
use serde_json::{Value, json};
use sluicegate_server::{Bounds, Charge};
use sluicegate_tests::log::Log;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;

use crate::support::{Served, assert_rare};

/// A window and two buckets.
const RULES: &str = r#"
version: 1
policies:
  user: { quota: 5/min, algorithm: fixed-window }
  path: { quota: 2/s burst 3 }
  spent: { quota: 10/h, quota_by: descriptor }
  tried: { quota: 1/h, mode: shadow }
  shown: { quota: 1/h, hidden: true }
deny: [{ name: banned, only_if: { descriptor: [{ user: eve }] } }]
exempt: [{ name: staff, only_if: { descriptor: [{ user: staff }] } }]
rules:
  - { name: user, only_if: { domain: edge, descriptor: [{ user: "*" }] }, limit: user, key: descriptor }
  - { name: path, only_if: { domain: edge, descriptor: [{ path: "*" }] }, limit: path, key: descriptor(path), cost: 2 }
  - { name: spent, only_if: { domain: spend }, limit: spent, key: descriptor }
  - { name: tried, only_if: { domain: tried }, limit: tried, key: descriptor }
  - { name: shown, only_if: { domain: shown }, limit: shown, key: descriptor }
  - { name: address, only_if: { domain: mistake }, limit: user, key: client }
"#;

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn call(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

pub(crate) async fn ask(served: &Served, call: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let mut client = RateLimitServiceClient::connect(format!("http://{}", served.grpc)).await.unwrap();
    client.should_rate_limit(call).await.map(tonic::Response::into_inner)
}

/// Asks by the bytes of a message.
async fn ask_by(served: &Served, message: Vec<u8>) -> Result<RateLimitResponse, Status> {
    let channel = Endpoint::new(format!("http://{}", served.grpc)).unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit".parse().unwrap();
    client.unary(tonic::Request::new(message), method, BytesOut).await.map(tonic::Response::into_inner)
}

/// Sends bytes as a message, and reads answers.
struct BytesOut;

impl Codec for BytesOut {
    type Encode = Vec<u8>;
    type Decode = RateLimitResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesOut {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        std::io::Write::write_all(&mut buffer.writer(), &message)
            .map_err(|error| Status::from_error(error.into()))
    }
}

impl Decoder for BytesOut {
    type Item = RateLimitResponse;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<RateLimitResponse>, Status> {
        RateLimitResponse::decode(buffer).map(Some).map_err(|error| Status::from_error(error.into()))
    }
}

/// The reason of a refusal.
fn detail(answer: &RateLimitResponse) -> String {
    String::from_utf8_lossy(&answer.raw_body).replace("\\\"", "\"")
}

async fn answered(served: &Served, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
    ask(served, call(domain, descriptors)).await.unwrap()
}

pub(crate) fn codes(answer: &RateLimitResponse) -> Vec<Code> {
    answer.statuses.iter().map(|status| status.code()).collect()
}

fn field<'a>(answer: &'a RateLimitResponse, name: &str) -> &'a str {
    let found = answer.response_headers_to_add.iter().find(|field| field.key == name);
    found.map_or("", |field| &field.value)
}

fn user(name: &str) -> RateLimitDescriptor {
    descriptor(&[("user", name)])
}

fn path(path: &str) -> RateLimitDescriptor {
    descriptor(&[("path", path)])
}

#[tokio::test]
async fn each_descriptor_gets_its_code_its_limit_what_is_left_and_until_when() {
    let served = Served::with(RULES, |builder| builder).await;
    served.clock.advance(Duration::from_secs(20));
    let answer =
        answered(&served, "edge", vec![user("ada"), path("/"), user("staff"), descriptor(&[("x", "y")])])
            .await;
    assert_eq!((answer.overall_code(), codes(&answer)), (Code::Ok, vec![Code::Ok; 4]));
    let [by_user, by_path, exempt, unlimited] = &answer.statuses[..] else { panic!("{answer:?}") };
    let limit = by_user.current_limit.clone().unwrap();
    assert_eq!((&*limit.name, limit.requests_per_unit, limit.unit()), ("user", 5, Unit::Minute));
    let until = by_user.duration_until_reset.unwrap();
    assert_eq!((by_user.limit_remaining, until.seconds, until.nanos), (4, 40, 0));
    assert_eq!(by_path.limit_remaining, 1, "the rule costs two");
    assert_eq!(by_path.current_limit.clone().unwrap().unit(), Unit::Second);
    for free in [exempt, unlimited] {
        assert_eq!((free.limit_remaining, &free.current_limit), (u32::MAX, &None));
    }
    assert_eq!(field(&answer, "x-ratelimit-remaining"), "1", "of the tightest limit");
    assert!(answer.raw_body.is_empty());
}

#[tokio::test]
async fn a_refused_call_has_retry_after_and_a_problem_and_spends_nothing() {
    let served = Served::with(RULES, |builder| builder).await;
    assert_eq!(answered(&served, "edge", vec![path("/")]).await.overall_code(), Code::Ok);
    let answer = answered(&served, "edge", vec![user("ada"), path("/")]).await;
    assert_eq!((answer.overall_code(), codes(&answer)), (Code::OverLimit, vec![Code::Ok, Code::OverLimit]));
    assert_eq!(
        (field(&answer, "retry-after"), field(&answer, "content-type")),
        ("1", "application/problem+json")
    );
    let problem: Value = serde_json::from_slice(&answer.raw_body).unwrap();
    assert_eq!(problem["status"], 429);
    let answer = answered(&served, "edge", vec![user("ada")]).await;
    assert_eq!(answer.statuses[0].limit_remaining, 4, "the refused call has not spent");
}

#[tokio::test]
async fn if_each_is_charged_the_descriptors_that_fit_have_spent() {
    let served = Served::with(RULES, |builder| builder.charge(Charge::Each)).await;
    assert_eq!(answered(&served, "edge", vec![path("/")]).await.overall_code(), Code::Ok);
    let answer = answered(&served, "edge", vec![user("ada"), path("/"), user("eve")]).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::OverLimit, Code::OverLimit]);
    assert_eq!(answer.statuses[0].limit_remaining, 4);
    let answer = answered(&served, "edge", vec![user("ada")]).await;
    assert_eq!(answer.statuses[0].limit_remaining, 3);
}

#[tokio::test]
async fn hits_are_those_of_the_descriptor_or_else_of_the_call_and_none_is_a_look() {
    let served = Served::with(RULES, |builder| builder).await;
    let hits = |hits: u64, name| RateLimitDescriptor {
        hits_addend: Some(UInt64Value { value: hits }),
        ..user(name)
    };
    let request = RateLimitRequest { hits_addend: 3, ..call("edge", vec![hits(2, "ada"), user("bob")]) };
    let answer = ask(&served, request).await.unwrap();
    let left: Vec<u32> = answer.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(left, [3, 2]);

    for _ in 0..2 {
        let look = answered(&served, "edge", vec![hits(0, "ada")]).await;
        assert_eq!((look.overall_code(), look.statuses[0].limit_remaining), (Code::Ok, 3));
    }
    assert_eq!(answered(&served, "edge", vec![hits(3, "ada")]).await.overall_code(), Code::Ok);
    assert_eq!(answered(&served, "edge", vec![hits(0, "ada")]).await.overall_code(), Code::OverLimit);
    let above = answered(&served, "edge", vec![hits(6, "bob")]).await;
    assert_eq!((above.overall_code(), field(&above, "retry-after")), (Code::OverLimit, ""), "it never fits");
}

#[tokio::test]
async fn negative_hits_give_back_and_never_refuse() {
    let served = Served::with(RULES, |builder| builder).await;
    let hits = |hits: u64, is_negative_hits| RateLimitDescriptor {
        hits_addend: Some(UInt64Value { value: hits }),
        is_negative_hits,
        ..user("ada")
    };
    answered(&served, "edge", vec![hits(5, false)]).await;
    let answer = answered(&served, "edge", vec![hits(2, true), user("bob")]).await;
    assert_eq!((answer.overall_code(), answer.statuses[0].limit_remaining), (Code::Ok, 2));
    let answer = answered(&served, "edge", vec![hits(100, true)]).await;
    assert_eq!(answer.statuses[0].limit_remaining, 5, "no more than there ever was");
}

#[tokio::test]
async fn a_limit_in_the_descriptor_is_the_quota_of_its_key_where_the_policy_says_so() {
    let served = Served::with(RULES, |builder| builder).await;
    let with = |requests_per_unit, unit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit }),
        ..user("ada")
    };
    let answer = answered(&served, "spend", vec![with(100, 2)]).await;
    let status = &answer.statuses[0];
    let limit = status.current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit(), status.limit_remaining), (100, Unit::Minute, 99));
    let answer = answered(&served, "edge", vec![with(100, 2)]).await;
    assert_eq!(answer.statuses[0].limit_remaining, 4, "the rules say five");
    for (requests, unit, said) in [(0, 2, "is 0"), (5, 0, "no unit"), (5, 77, "no unit")] {
        let answer = answered(&served, "spend", vec![with(requests, unit)]).await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert!(detail(&answer).contains(said), "{answer:?}");
    }
}

#[tokio::test]
async fn several_descriptors_of_one_policy_spend_from_their_own_buckets_together() {
    let served = Served::with(RULES, |builder| builder).await;
    for left in [4, 3] {
        let answer = answered(&served, "edge", vec![user("ada"), user("bob"), user("ada")]).await;
        assert_eq!(answer.overall_code(), Code::Ok, "{left}");
    }
    let answer = answered(&served, "edge", vec![user("ada"), user("bob"), user("ada")]).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::Ok, Code::OverLimit]);
    let answer = answered(&served, "edge", vec![user("bob")]).await;
    assert_eq!(answer.statuses[0].limit_remaining, 2);
}

#[tokio::test]
async fn a_shadow_policy_refuses_nobody_and_a_hidden_one_shows_no_numbers() {
    let served = Served::with(RULES, |builder| builder).await;
    for _ in 0..3 {
        assert_eq!(answered(&served, "tried", vec![user("ada")]).await.overall_code(), Code::Ok);
    }
    let look = served.ask("/v1/peek", json!({ "policy": "tried", "key": ["tried", "user", "ada"] })).await;
    assert_eq!(look.remaining(), 0, "it is counted");
    answered(&served, "shown", vec![user("ada")]).await;
    let answer = answered(&served, "shown", vec![user("ada")]).await;
    assert_eq!((answer.overall_code(), &answer.statuses[0].current_limit), (Code::OverLimit, &None));
}

#[tokio::test]
async fn a_denial_refuses_the_call_and_the_other_descriptors_spend_nothing() {
    let served = Served::with(RULES, |builder| builder).await;
    let answer = answered(&served, "edge", vec![user("ada"), user("eve")]).await;
    assert_eq!((answer.overall_code(), codes(&answer)[1]), (Code::OverLimit, Code::OverLimit));
    assert_eq!(answered(&served, "edge", vec![user("ada")]).await.statuses[0].limit_remaining, 4);
}

#[tokio::test]
async fn a_call_that_cannot_be_read_or_is_above_a_bound_is_refused_and_is_no_error() {
    let served = Served::with(RULES, |builder| builder).await;
    let most = Bounds::default().descriptors;
    let long = "a".repeat(60 * 1024);
    for (call, said) in [
        (call("", vec![user("ada")]), "the domain of the call is empty"),
        (call("edge", vec![]), "no descriptors"),
        (call("edge", vec![user("ada"); most + 1]), "17 descriptors; at most 16"),
        (call("edge", vec![user(&long.repeat(19))]), "1114112 bytes"),
        (call("mistake", vec![user("ada")]), "does not know who is asking"),
        (call("mistake", vec![descriptor(&[("remote_address", "unix:")])]), "remote_address"),
    ] {
        let answer = ask(&served, call).await.unwrap();
        assert_eq!(answer.overall_code(), Code::OverLimit, "{said}");
        assert!(detail(&answer).contains(said), "{said}: {answer:?}");
    }
    for message in [&b"\xff\xff\xff\xff\xff"[..], b"\x0a\x7fa", b""] {
        let answer = ask_by(&served, message.to_vec()).await.unwrap();
        assert_eq!(answer.overall_code(), Code::OverLimit, "{message:?}");
    }
    assert_eq!(answered(&served, "edge", vec![path("/a"); most]).await.statuses.len(), most);
    let answer = answered(&served, "edge", vec![user(&long); most]).await;
    assert_eq!((answer.overall_code(), answer.statuses.len()), (Code::OverLimit, most), "five are allowed");
}

/// Such bytes once made the call an error, for which Envoy lets requests pass.
#[tokio::test]
async fn bytes_that_are_no_text_are_read_and_counted() {
    let served = Served::with(RULES, |builder| builder).await;
    for (of, expected) in [("user", [Code::Ok, Code::OverLimit]), ("\u{7f}", [Code::Ok; 2])] {
        let mut message = call("edge", vec![descriptor(&[(of, "a\u{7f}")])]).encode_to_vec();
        message.iter_mut().filter(|byte| **byte == 0x7f).for_each(|byte| *byte = 0xff);
        let mut found = Vec::new();
        for _ in 0..6 {
            found.push(ask_by(&served, message.clone()).await.unwrap().overall_code());
        }
        assert_eq!([found[4], found[5]], expected, "{of:?}: {found:?}");
    }
}

#[tokio::test]
async fn descriptors_that_cannot_be_decided_write_one_line_a_second_into_the_log() {
    let (log, served) = (Log::of_this_thread(), Served::with(RULES, |builder| builder).await);
    let lines = ["cannot be decided for a descriptor", "the call has no descriptors"];
    assert_rare(&log, &lines, 20, async || {
        assert_eq!(answered(&served, "mistake", vec![user("ada")]).await.overall_code(), Code::OverLimit);
        assert_eq!(answered(&served, "edge", vec![]).await.overall_code(), Code::OverLimit);
    })
    .await;
}

#[tokio::test]
async fn the_secret_is_required_in_the_metadata() {
    let served = Served::with(RULES, |builder| builder.secret("0123456789abcdef")).await;
    let status = ask(&served, call("edge", vec![user("ada")])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    let mut client = RateLimitServiceClient::connect(format!("http://{}", served.grpc)).await.unwrap();
    let mut request = tonic::Request::new(call("edge", vec![user("ada")]));
    request.metadata_mut().insert("authorization", "Bearer 0123456789abcdef".parse().unwrap());
    assert_eq!(client.should_rate_limit(request).await.unwrap().into_inner().overall_code(), Code::Ok);
}
