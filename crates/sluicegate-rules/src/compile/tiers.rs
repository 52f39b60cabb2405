//! The tiers of a file: limits of several sizes.
//!
//! A set of tiers has a name, says where the tier of a request is read, and gives a policy to each tier or calls it `unlimited`. A request
//! that says no tier of these is in the default one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_core::{ConfigError, RateLimiter, Store};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{ChosenQuotas, Tiers};

use super::by::By;
use super::keys::{Keys, Namer};
use super::own::{KeyedPolicy, SingleKeys, UNLIMITED, single_keys};
use super::plan::Plan;
use super::policies::Policies;
use crate::at::At;
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{File, Named, TiersEntry};

/// Sizes of one limit: each tier with its policy, or none.
#[derive(Clone)]
pub(super) struct TierSet {
    /// In the order of the file; no policy for `unlimited`.
    tiers: Vec<(String, Option<KeyedPolicy>)>,
    pub plan: Arc<Plan>,
    /// Keys with quotas of their own, whatever their tier.
    single: Arc<SingleKeys>,
    /// The tier in whose buckets these keys are.
    tier_of_single: usize,
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
        if policy.value == UNLIMITED {
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
            let mut names: Vec<_> = policies.names().chain([UNLIMITED]).collect();
            names.sort_unstable();
            let instead = instead_of(&policy.value, &names);
            problems.error(policy.place, format!("there is no policy {:?}{instead}", short(&policy.value)));
        }
    }
    if given.0.iter().all(|(_, policy)| policy.value == UNLIMITED) {
        problems.error(entry.place, "tiers without a policy limit nothing: name one for a tier");
    }
    let default_place = given.0.iter().position(|(tier, _)| tier.value == default_tier.value);
    if default_place.is_none() {
        let names: Vec<_> = given.0.iter().map(|(tier, _)| &*tier.value).collect();
        let text = format!("{:?} is not among the tiers: {}", short(&default_tier.value), names.join(", "));
        problems.error(default_tier.place, text);
    }
    let by = by.all();
    let by: Vec<By> = by.iter().filter_map(|word| By::of_tiers(word, keys, problems)).collect();
    warn_of_unknown(&by, given, (name, default_tier), problems);
    // All else is as in the default tier; or in the first that is limited, if that one is not.
    let is_limited = |tier: &usize| tiers.get(*tier).is_some_and(|(_, policy)| policy.is_some());
    let tier_of_single = default_place.into_iter().chain(0..tiers.len()).find(is_limited);
    let mut single = SingleKeys::new();
    if let Some((_, Some(like))) = tier_of_single.and_then(|tier| tiers.get_mut(tier)) {
        single = single_keys(&like.policy, overrides, problems);
        if !single.is_empty() {
            *like = like.with_keys(&single);
        }
    }
    let (default_tier, tier_of_single) =
        default_place.zip(tier_of_single).filter(|_| problems.errors() == before)?;
    if tiers.iter().flat_map(|(_, policy)| policy).any(KeyedPolicy::takes_quotas) {
        // One limit asks all of them, and its requests may bring quotas.
        tiers.iter_mut().flat_map(|(_, policy)| policy).for_each(KeyedPolicy::take_quotas);
    }
    let names = tiers.iter().map(|(tier, _)| tier.clone()).collect();
    let plan = Plan { place, name: name.value.clone(), tiers: names, default_tier, by };
    Some(TierSet { tiers, plan: Arc::new(plan), single: Arc::new(single), tier_of_single, namer: None })
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
    pub(super) fn share(&self, rule: &str, parts: u64, whole: u64) -> Result<Self, ConfigError> {
        let tiers = self.tiers.iter().map(|(tier, policy)| {
            let policy = policy.as_ref().map(|policy| policy.share(rule, parts, whole)).transpose()?;
            Ok((tier.clone(), policy))
        });
        Ok(Self { tiers: tiers.collect::<Result<_, ConfigError>>()?, ..self.clone() })
    }

    /// The same tiers, for a rule that calls keys by these names.
    pub(super) fn named_by(self, namer: impl Fn() -> Namer) -> Self {
        let named = |policy: KeyedPolicy| policy.named_by(&namer);
        let tiers = self.tiers.into_iter().map(|(tier, policy)| (tier, policy.map(named))).collect();
        let namer = (!self.single.is_empty()).then(namer);
        Self { tiers, namer, ..self }
    }

    /// All policies that it may spend from.
    pub(super) fn policies(&self) -> impl Iterator<Item = &KeyedPolicy> {
        self.tiers.iter().filter_map(|(_, policy)| policy.as_ref())
    }

    /// The place of the tier that a request spends from; none for the default one where the request says none.
    fn tier(&self, request: RequestView<'_>) -> Option<usize> {
        let named = self.namer.as_ref().and_then(|namer| namer(request));
        let is_single = named.is_some_and(|name| self.single.contains_key(&name));
        if is_single { Some(self.tier_of_single) } else { self.plan.said(request) }
    }

    /// The quotas of a request's key.
    fn quotas(&self, request: RequestView<'_>) -> ChosenQuotas {
        let (_, policy) = &self.tiers[self.tier(request).unwrap_or(self.plan.default_tier)];
        policy.as_ref().map_or(ChosenQuotas::Default, |policy| policy.choose(request))
    }

    /// The limit, now that its policies are open.
    pub(super) fn limit(
        &self,
        store: &Arc<dyn Store>,
        limiter: impl Fn(&str) -> Option<RateLimiter>,
    ) -> Result<Limit, ConfigError> {
        let mut tiers = Tiers::builder(Arc::clone(store));
        for (tier, policy) in &self.tiers {
            tiers = match policy.as_ref().and_then(|keyed| limiter(keyed.policy.name())) {
                Some(limiter) => tiers.tier_with(tier, limiter),
                None => tiers.unlimited(tier),
            };
        }
        let (this, default_tier) = (self.clone(), &self.plan.tiers[self.plan.default_tier]);
        let limit = Limit::tiered_async(tiers.default_tier(default_tier).build()?, move |request| {
            std::future::ready(this.tier(request).map(|tier| this.plan.tiers[tier].clone()))
        });
        let this = self.clone();
        Ok(match self.policies().any(KeyedPolicy::takes_quotas) {
            true => limit.quota_by(move |request| this.quotas(request)),
            false => limit,
        })
    }
}
