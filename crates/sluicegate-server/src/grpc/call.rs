//! Reading a call of the protocol: [`EnvoyCall`].

use std::time::Duration;

use axum::body::{Body, Bytes};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use prost::Message as _;
use sluicegate_core::Quota;
use sluicegate_rules::{Descriptor, Descriptors};

use crate::builder::Bounds;
use crate::grpc::PREFIX;

/// The bytes of a message for each descriptor, and for the rest of it: Envoy's clients have 60 KiB for all of their header fields.
const EACH_DESCRIPTOR: usize = 64 * 1024;

/// `envoy.service.ratelimit.v3.RateLimitRequest`, with bytes in place of texts: Envoy writes what its client has sent, which may be any bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct CallMessage {
    #[prost(bytes = "bytes", tag = "1")]
    domain: Bytes,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<DescriptorMessage>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
struct DescriptorMessage {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<EntryMessage>,
    #[prost(message, optional, tag = "2")]
    limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<UInt64Value>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EntryMessage {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// A call, as the rules see it.
pub(super) struct EnvoyCall {
    pub(super) descriptors: Descriptors,
    /// One for each descriptor.
    pub(super) hits: Vec<Hits>,
}

/// The purpose of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// Spends the hits.
    Spend,
    /// Spends nothing, and reports whether one hit would pass.
    Look,
    /// Gives the hits back.
    Refund,
}

impl EnvoyCall {
    /// Reads a call within the bounds, or says why it cannot be decided.
    pub(super) async fn read(body: Body, bounds: &Bounds) -> Result<Self, String> {
        let CallMessage { domain, descriptors, hits_addend } = message(body, bounds).await?;
        if domain.is_empty() {
            return Err("the domain of the call is empty".to_owned());
        }
        if descriptors.is_empty() {
            return Err("the call has no descriptors".to_owned());
        }
        if descriptors.len() > bounds.descriptors {
            return Err(format!(
                "the call has {} descriptors; at most {} are accepted",
                descriptors.len(),
                bounds.descriptors
            ));
        }
        // 0 is the value of a field that is not set.
        let hits_of_call = u64::from(hits_addend.max(1));
        let mut hits = Vec::with_capacity(descriptors.len());
        let mut all = Vec::with_capacity(descriptors.len());
        for DescriptorMessage { entries, limit, hits_addend, is_negative_hits } in descriptors {
            let own = hits_addend.map_or(hits_of_call, |own| own.value);
            hits.push(match (own, is_negative_hits) {
                (0, _) => Hits::Look,
                (_, true) => Hits::Refund,
                (_, false) => Hits::Spend,
            });
            let entries = entries.into_iter().map(|entry| (readable(&entry.key), readable(&entry.value)));
            let descriptor = Descriptor::new(entries).hits(own.max(1));
            all.push(match limit {
                Some(limit) => descriptor.limit(quota(limit)?),
                None => descriptor,
            });
        }
        Ok(Self { descriptors: Descriptors::new(readable(&domain), all), hits })
    }
}

/// The message in a body.
async fn message(body: Body, bounds: &Bounds) -> Result<CallMessage, String> {
    let longest = EACH_DESCRIPTOR.saturating_mul(bounds.descriptors.saturating_add(1));
    let body = Limited::new(body, longest.saturating_add(PREFIX)).collect().await;
    let bytes = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => format!("the message has more than {longest} bytes, the most that this server accepts"),
        false => "the message ended early".to_owned(),
    })?;
    let mut bytes = bytes.to_bytes();
    let unreadable = || "the message cannot be read".to_owned();
    let prefix = bytes.split_to(PREFIX.min(bytes.len()));
    match prefix.split_first_chunk() {
        // Nobody may compress: the server announces no compression.
        Some(([0], length)) if <[u8; 4]>::try_from(length).is_ok_and(|length| is_length(&bytes, length)) => {
            CallMessage::decode(bytes).map_err(|_| unreadable())
        }
        _ => Err(unreadable()),
    }
}

fn is_length(bytes: &Bytes, length: [u8; 4]) -> bool {
    usize::try_from(u32::from_be_bytes(length)) == Ok(bytes.len())
}

/// A text of these bytes. What is not UTF-8 becomes the character for unknown ones.
fn readable(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn quota(RateLimitOverride { requests_per_unit, unit }: RateLimitOverride) -> Result<Quota, String> {
    let days = match RateLimitUnit::try_from(unit) {
        Ok(RateLimitUnit::Second) => return per(requests_per_unit, Duration::from_secs(1)),
        Ok(RateLimitUnit::Minute) => return per(requests_per_unit, Duration::from_secs(60)),
        Ok(RateLimitUnit::Hour) => return per(requests_per_unit, Duration::from_secs(3_600)),
        Ok(RateLimitUnit::Day) => 1,
        Ok(RateLimitUnit::Month) => 30,
        Ok(RateLimitUnit::Year) => 365,
        _ => return Err("the limit of a descriptor has no unit".to_owned()),
    };
    per(requests_per_unit, Duration::from_secs(days * 86_400))
}

fn per(limit: u32, period: Duration) -> Result<Quota, String> {
    match limit {
        0 => Err("the limit of a descriptor is 0: write a rule under \"deny\" for what is never allowed"
            .to_owned()),
        limit => Ok(Quota::new(limit.into(), period)),
    }
}
