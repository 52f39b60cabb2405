//! The tiers of a file, and how a request's tier is read.

use std::collections::HashMap;

use http::HeaderName;
use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};
use sluicegate_tower::Limit;
use sluicegate_tower::key::{BearerJwt, RequestView};
use sluicegate_tower::limits::Tiers;

use super::keys::{Keys, call};
use super::policies::Policies;
use crate::at::At;
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{File, TiersEntry};

/// Sizes of one limit: each tier with its policy, or none.
#[derive(Clone)]
pub(super) struct TierSet {
    pub(super) name: At<String>,
    pub(super) tiers: Vec<(String, Option<Policy>)>,
    default_tier: String,
    by: Vec<By>,
}

/// Where the tier of a request is read.
#[derive(Clone)]
enum By {
    Claim(std::sync::Arc<BearerJwt>, String),
    Header(HeaderName),
}

pub(super) fn all(
    file: &File,
    policies: &Policies,
    keys: &Keys,
    problems: &mut Problems<'_>,
) -> HashMap<String, Option<TierSet>> {
    let mut all = HashMap::new();
    for (name, entry) in &file.tiers.0 {
        if policies.has(&name.value) {
            let text = format!("{:?} is a policy already: policies and tiers share their names", name.value);
            problems.error(name.place, text);
        }
        let set = tier_set(name, entry, (policies, keys), problems);
        all.insert(name.value.clone(), set);
    }
    all
}

fn tier_set(
    name: &At<String>,
    entry: &At<TiersEntry>,
    (policies, keys): (&Policies, &Keys),
    problems: &mut Problems<'_>,
) -> Option<TierSet> {
    let before = problems.count();
    let TiersEntry { by, tiers: given, default_tier } = &entry.value;
    let mut tiers = Vec::new();
    for (tier, policy) in &given.0 {
        if policy.value == "unlimited" {
            tiers.push((tier.value.clone(), None));
        } else if policies.has(&policy.value) {
            if let Some(policy) = policies.used(&policy.value) {
                tiers.push((tier.value.clone(), Some(policy.clone())));
            }
        } else {
            let mut names: Vec<_> = policies.names().chain(["unlimited"]).collect();
            names.sort_unstable();
            let instead = instead_of(&policy.value, &names);
            problems.error(policy.place, format!("there is no policy {:?}{instead}", short(&policy.value)));
        }
    }
    if given.0.iter().all(|(_, policy)| policy.value == "unlimited") {
        problems.error(entry.place, "tiers without a policy limit nothing: name one for a tier");
    }
    if !given.0.iter().any(|(tier, _)| tier.value == default_tier.value) {
        let names: Vec<_> = given.0.iter().map(|(tier, _)| &*tier.value).collect();
        let text = format!("{:?} is not among the tiers: {}", short(&default_tier.value), names.join(", "));
        problems.error(default_tier.place, text);
    }
    let by = by.all().iter().filter_map(|word| source(word, keys, problems)).collect();
    (problems.count() == before).then(|| TierSet {
        name: name.clone(),
        tiers,
        default_tier: default_tier.value.clone(),
        by,
    })
}

fn source(word: &At<String>, keys: &Keys, problems: &mut Problems<'_>) -> Option<By> {
    let found = match call(&word.value) {
        Some(("header", name)) => match name.parse() {
            Ok(name) => Ok(By::Header(name)),
            Err(_) => Err(format!("{:?} is not the name of a header field", short(name))),
        },
        Some(("jwt", claim)) => match keys.verifier().map(|verifier| verifier.claim("sub")) {
            Some(Ok(jwt)) => Ok(By::Claim(std::sync::Arc::new(jwt), claim.to_owned())),
            Some(Err(error)) => Err(error.problem().to_owned()),
            None => Err("this needs the section \"jwt\", which says how tokens are verified".to_owned()),
        },
        _ => Err(format!(
            "{:?} does not say where a tier is read: use jwt(claim) or header(name)",
            short(&word.value)
        )),
    };
    found.map_err(|text| problems.error(word.place, text)).ok()
}

impl By {
    /// The tier, if the request says one.
    fn find(&self, request: RequestView<'_>) -> Option<String> {
        match self {
            Self::Header(name) => request.headers.get(name)?.to_str().ok().map(str::to_owned),
            Self::Claim(jwt, claim) => jwt.verify(request).ok()?.text(claim).map(str::to_owned),
        }
    }
}

impl TierSet {
    /// The same tiers with a part of each quota, under names of their own.
    pub(super) fn share(&self, parts: u64, whole: u64, suffix: &str) -> Result<Self, ConfigError> {
        let share = |policy: &Policy| policy.share(format!("{}.{suffix}", policy.name()), parts, whole);
        let tiers = self.tiers.iter().map(|(tier, policy)| {
            let policy = policy.as_ref().map(share).transpose()?;
            Ok((tier.clone(), policy))
        });
        let tiers = tiers.collect::<Result<_, ConfigError>>()?;
        Ok(Self {
            name: self.name.clone(),
            tiers,
            default_tier: self.default_tier.clone(),
            by: self.by.clone(),
        })
    }

    /// The limit, now that its policies are open.
    pub(super) fn limit(
        &self,
        store: &std::sync::Arc<dyn Store>,
        limiter: impl Fn(&str) -> Option<RateLimiter>,
    ) -> Result<Limit, ConfigError> {
        let mut tiers = Tiers::builder(std::sync::Arc::clone(store));
        for (tier, policy) in &self.tiers {
            tiers = match policy.as_ref().and_then(|policy| limiter(policy.name())) {
                Some(limiter) => tiers.tier_with(tier, limiter),
                None => tiers.unlimited(tier),
            };
        }
        let by = self.by.clone();
        Ok(Limit::tiered_async(tiers.default_tier(&self.default_tier).build()?, move |request| {
            let tier = by.iter().find_map(|by| by.find(request));
            std::future::ready(tier)
        }))
    }
}
