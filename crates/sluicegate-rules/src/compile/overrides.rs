//! Quotas of single keys instead of their tier's.
//!
//! Each is a tier of its own, which no request can choose: the name of its key does.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use sluicegate_core::Policy;

use super::policies::Policies;
use crate::at::At;
use crate::error::Problems;
use crate::schema::{Named, OneOrMany};

/// A key with quotas of its own.
#[derive(Clone)]
pub(super) struct Override {
    /// The name of its tier, which no tier of a file has: names of keys are behind a blank.
    pub tier: String,
    pub policy: Policy,
}

impl Override {
    /// The same key, with this policy.
    pub(super) fn with(&self, policy: Policy) -> Self {
        Self { tier: self.tier.clone(), policy }
    }
}

/// The most keys with quotas of their own: each is a policy.
const MOST: usize = 1_000;

pub(super) fn of(
    tiers: &At<String>,
    section: &Named<At<OneOrMany>>,
    (given, default_tier): (&Named<At<String>>, &At<String>),
    policies: &Policies,
    problems: &mut Problems<'_>,
) -> HashMap<String, Override> {
    if section.0.len() > MOST {
        let text = format!("{} keys have quotas of their own, and at most {MOST} may", section.0.len());
        problems.error(tiers.place, text);
        return HashMap::new();
    }
    // All else is as in the default tier; or in the first that is limited, if that one is not.
    let of_default = given.0.iter().filter(|(tier, _)| tier.value == default_tier.value);
    let like = of_default.chain(&given.0).find(|(_, policy)| policies.has(&policy.value));
    let Some((_, like)) = like else { return HashMap::new() };
    let each = section.0.iter().filter_map(|(key, quota)| {
        let name = format!("{}.{}", tiers.value, short_name(&key.value));
        let policy = policies.of_one_key(&like.value, &name, quota, problems)?;
        Some((key.value.clone(), Override { tier: format!("key {}", key.value), policy }))
    });
    each.collect()
}

/// A name that a policy may have: the key's own, or a digest of it.
fn short_name(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    if !key.is_empty() && key.len() <= 32 && key.bytes().all(plain) {
        return key.to_owned();
    }
    Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
