//! Reading a call of the protocol: [`EnvoyCall`].

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use sluicegate_core::Quota;
use sluicegate_rules::{Descriptor, Descriptors};
use tonic::Status;

use crate::builder::Bounds;

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
    /// Reads a call within the bounds.
    pub(super) fn read(call: RateLimitRequest, bounds: &Bounds) -> Result<Self, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = call;
        if domain.is_empty() {
            return Err(Status::invalid_argument("the domain is empty"));
        }
        if descriptors.is_empty() {
            return Err(Status::invalid_argument("the call has no descriptors"));
        }
        if descriptors.len() > bounds.descriptors {
            let text = format!(
                "the call has {} descriptors; at most {} are accepted",
                descriptors.len(),
                bounds.descriptors
            );
            return Err(Status::resource_exhausted(text));
        }
        // 0 is the value of a field that is not set.
        let hits_of_call = u64::from(hits_addend.max(1));
        let mut hits = Vec::with_capacity(descriptors.len());
        let mut all = Vec::with_capacity(descriptors.len());
        for RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits } in descriptors {
            let own = hits_addend.map_or(hits_of_call, |own| own.value);
            hits.push(match (own, is_negative_hits) {
                (0, _) => Hits::Look,
                (_, true) => Hits::Refund,
                (_, false) => Hits::Spend,
            });
            let entries = entries.into_iter().map(|entry| (entry.key, entry.value));
            let descriptor = Descriptor::new(entries).hits(own.max(1));
            all.push(match limit {
                Some(limit) => descriptor.limit(quota(limit)?),
                None => descriptor,
            });
        }
        Ok(Self { descriptors: Descriptors::new(domain, all), hits })
    }
}

fn quota(RateLimitOverride { requests_per_unit, unit }: RateLimitOverride) -> Result<Quota, Status> {
    let days = match RateLimitUnit::try_from(unit) {
        Ok(RateLimitUnit::Second) => return per(requests_per_unit, Duration::from_secs(1)),
        Ok(RateLimitUnit::Minute) => return per(requests_per_unit, Duration::from_secs(60)),
        Ok(RateLimitUnit::Hour) => return per(requests_per_unit, Duration::from_secs(3_600)),
        Ok(RateLimitUnit::Day) => 1,
        Ok(RateLimitUnit::Month) => 30,
        Ok(RateLimitUnit::Year) => 365,
        _ => return Err(Status::invalid_argument("the limit of a descriptor has no unit")),
    };
    per(requests_per_unit, Duration::from_secs(days * 86_400))
}

fn per(limit: u32, period: Duration) -> Result<Quota, Status> {
    match limit {
        0 => Err(Status::invalid_argument(
            "the limit of a descriptor is 0: write a rule under \"deny\" for what is never allowed",
        )),
        limit => Ok(Quota::new(limit.into(), period)),
    }
}
