//! The tiers of a file: limits of several sizes.
//!
//! A set of tiers has a name, says where the tier of a request is read, and gives a policy to each tier or calls it `unlimited`. A request
//! that says no tier of these is in the default one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::Tiers;

use super::keys::{Keys, Namer};
use super::overrides::{self, Override};
use super::plan::{By, Plan};
use super::policies::Policies;
use crate::at::At;
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{File, Named, TiersEntry};

/// Sizes of one limit: each tier with its policy, or none.
#[derive(Clone)]
pub(super) struct TierSet {
    /// In the order of the file; no policy for `unlimited`.
    pub tiers: Vec<(String, Option<Policy>)>,
    pub plan: Arc<Plan>,
    /// Keys with quotas of their own.
    overrides: Arc<HashMap<String, Override>>,
    /// By what name an operator calls the key of a request, where that matters.
    namer: Option<Namer>,
}

/// The tiers of a file by name; nothing where something is wrong with them, which is told already.
pub(super) type AllTiers = HashMap<String, Option<TierSet>>;

pub(super) fn all(file: &File, policies: &Policies, keys: &Keys, problems: &mut Problems<'_>) -> AllTiers {
    let mut all = HashMap::new();
    for (place, (name, entry)) in file.tiers.0.iter().enumerate() {
        if policies.has(&name.value) {
            let text = format!("{:?} is a policy already: policies and tiers share their names", name.value);
            problems.error(name.place, text);
        }
        let set = tier_set((place, name), entry, (policies, keys), problems);
        all.insert(name.value.clone(), set);
    }
    all
}

fn tier_set(
    (place, name): (usize, &At<String>),
    entry: &At<TiersEntry>,
    (policies, keys): (&Policies, &Keys),
    problems: &mut Problems<'_>,
) -> Option<TierSet> {
    let before = problems.errors();
    let TiersEntry { by, tiers: given, default_tier, overrides } = &entry.value;
    let mut tiers = Vec::new();
    for (tier, policy) in &given.0 {
        if policy.value == "unlimited" {
            tiers.push((tier.value.clone(), None));
        } else if policies.room(&policy.value).is_some() {
            let text = format!(
                "{:?} is a waiting room, which is no tier: name it as the limit of a rule",
                policy.value
            );
            problems.error(policy.place, text);
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
    let default_place = given.0.iter().position(|(tier, _)| tier.value == default_tier.value);
    if default_place.is_none() {
        let names: Vec<_> = given.0.iter().map(|(tier, _)| &*tier.value).collect();
        let text = format!("{:?} is not among the tiers: {}", short(&default_tier.value), names.join(", "));
        problems.error(default_tier.place, text);
    }
    let by = by.all();
    let by: Vec<By> = by.iter().filter_map(|word| By::of(word, keys, problems)).collect();
    warn_of_unknown(&by, given, (name, default_tier), problems);
    let overrides = overrides::of(name, overrides, (given, default_tier), policies, problems);
    let default_tier = default_place.filter(|_| problems.errors() == before)?;
    let names = tiers.iter().map(|(tier, _)| tier.clone()).collect();
    let plan = Plan { place, name: name.value.clone(), tiers: names, default_tier, by };
    Some(TierSet { tiers, plan: Arc::new(plan), overrides: Arc::new(overrides), namer: None })
}

/// A tier that the file of API keys gives and nobody knows is the default one.
fn warn_of_unknown(
    by: &[By],
    given: &Named<At<String>>,
    (name, default_tier): (&At<String>, &At<String>),
    problems: &mut Problems<'_>,
) {
    let listed = by.iter().filter_map(|by| match by {
        By::ApiKey(keys) => Some(keys.tiers()),
        _ => None,
    });
    let is_unknown = |tier: &&str| !given.0.iter().any(|(known, _)| known.value == **tier);
    let unknown: BTreeSet<&str> = listed.flatten().filter(is_unknown).collect();
    for tier in unknown {
        let text = format!(
            "the file of API keys names tier {:?}, which is not among these: such keys get {:?}",
            short(tier),
            default_tier.value
        );
        problems.warning(name.place, text);
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
        let overrides =
            self.overrides.iter().map(|(key, own)| Ok((key.clone(), own.with(share(&own.policy)?))));
        let overrides = Arc::new(overrides.collect::<Result<_, ConfigError>>()?);
        Ok(Self { tiers, overrides, ..self.clone() })
    }

    /// The same tiers, for a rule that calls keys by these names.
    pub(super) fn of_keys(self, namer: impl FnOnce() -> Namer) -> Self {
        let namer = (!self.overrides.is_empty()).then(namer);
        Self { namer, ..self }
    }

    /// All policies that it may spend from.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        let of_tiers = self.tiers.iter().filter_map(|(_, policy)| policy.as_ref());
        of_tiers.chain(self.overrides.values().map(|own| &own.policy))
    }

    /// The tier of a request: one of its own, or that of its plan.
    fn tier(&self, request: RequestView<'_>) -> Option<String> {
        let named = self.namer.as_ref().and_then(|namer| namer(request));
        if let Some(own) = named.and_then(|name| self.overrides.get(&name)) {
            return Some(own.tier.clone());
        }
        // Nobody may choose the tier of a single key.
        self.plan.said(request).map(|tier| self.plan.tiers[tier].clone())
    }

    /// The limit, now that its policies are open.
    pub(super) fn limit(
        &self,
        store: &Arc<dyn Store>,
        limiter: impl Fn(&str) -> Option<RateLimiter>,
    ) -> Result<Limit, ConfigError> {
        let mut tiers = Tiers::builder(Arc::clone(store));
        for (tier, policy) in &self.tiers {
            tiers = match policy.as_ref().and_then(|policy| limiter(policy.name())) {
                Some(limiter) => tiers.tier_with(tier, limiter),
                None => tiers.unlimited(tier),
            };
        }
        for own in self.overrides.values() {
            if let Some(limiter) = limiter(own.policy.name()) {
                tiers = tiers.tier_with(&own.tier, limiter);
            }
        }
        let this = self.clone();
        let default_tier = &self.plan.tiers[self.plan.default_tier];
        Ok(Limit::tiered_async(tiers.default_tier(default_tier).build()?, move |request| {
            std::future::ready(this.tier(request))
        }))
    }
}
