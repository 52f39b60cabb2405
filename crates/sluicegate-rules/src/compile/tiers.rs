//! The tiers of a file: limits of several sizes.
//!
//! A set of tiers has a name, says where the tier of a request is read, and gives each tier quotas of one policy, a policy of its own, or
//! makes it `unlimited`. A request that names none of these tiers is in the default tier.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_core::policy::Quotas;
use sluicegate_core::{ConfigError, RateLimiter};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{ChosenQuotas, Tiers};

use super::by::{AttributeSource, TierPlan};
use super::keys::{GivenKeys, KeyWords, Keys};
use super::own::{KeyedPolicy, Share};
use super::policies::Policies;
use super::quotas::{KeyQuotas, UNLIMITED, quotas_under};
use crate::at::At;
use crate::error::Problems;
use crate::schema::{File, Named, OneOrMany, TiersEntry};
use crate::shown::{instead_of, short};

/// Sizes of one limit.
#[derive(Clone)]
pub(super) struct TierSet {
    /// The tiers in the order of the file.
    tiers: Vec<(String, Tier)>,
    /// The policy with keys that have the quotas of their tier, if a tier has quotas.
    base: Option<KeyedPolicy>,
    pub plan: Arc<TierPlan>,
}

/// The limit of a tier.
#[derive(Clone)]
enum Tier {
    Quotas(Quotas),
    Policy(Box<KeyedPolicy>),
    Unlimited,
}

/// The tiers of a file by name; `None` if they are wrong, which is already reported.
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
    let TiersEntry { policy, by, tiers: given, default_tier } = &entry.value;
    let base = policy.as_ref().and_then(|policy| named(policy, policies, problems));
    let each = given.0.iter().filter_map(|(name, given)| {
        Some((name.value.clone(), tier(given, (policy.as_ref(), base), policies, problems)?))
    });
    let mut tiers: Vec<(String, Tier)> = each.collect();
    if given.0.iter().all(|(_, tier)| matches!(&tier.value, OneOrMany::One(word) if word == UNLIMITED)) {
        problems.error(entry.place, "tiers without a quota limit nothing: give one to a tier");
    }
    let of_tiers = || {
        tiers.iter().filter_map(|(_, tier)| match tier {
            Tier::Quotas(quotas) => Some(quotas.clone()),
            _ => None,
        })
    };
    if let Some(policy) =
        policy.as_ref().filter(|_| of_tiers().next().is_none() && problems.errors() == before)
    {
        problems.error(
            policy.place,
            "no tier has quotas of this policy: leave it out, or give a tier some, as 5/min",
        );
    }
    let base = base.map(|base| base.with_tiers(of_tiers()));
    let default_place = given.0.iter().position(|(tier, _)| tier.value == default_tier.value);
    if default_place.is_none() {
        let names: Vec<_> = given.0.iter().map(|(tier, _)| &*tier.value).collect();
        let text = format!("{:?} is not among the tiers: {}", short(&default_tier.value), names.join(", "));
        problems.error(default_tier.place, text);
    }
    let by = by.all();
    let by: Vec<AttributeSource> =
        by.iter().filter_map(|word| AttributeSource::of_tiers(word, keys, problems)).collect();
    warn_of_unknown(&by, given, (name, default_tier), problems);
    let default_tier = default_place.filter(|_| problems.errors() == before)?;
    let policies = || tiers.iter().filter_map(|(_, tier)| tier.policy());
    if base.is_some() || policies().any(KeyedPolicy::takes_quotas) {
        // One limit covers all tiers, and its requests may bring quotas.
        tiers.iter_mut().filter_map(|(_, tier)| tier.policy_mut()).for_each(KeyedPolicy::take_quotas);
    }
    let names = tiers.iter().map(|(tier, _)| tier.clone()).collect();
    let plan = TierPlan { place, name: name.value.clone(), tiers: names, default_tier, by };
    Some(TierSet { tiers, base, plan: Arc::new(plan) })
}

/// The limit of a tier. All of its mistakes are reported.
fn tier(
    given: &At<OneOrMany>,
    (name, base): (Option<&At<String>>, Option<&KeyedPolicy>),
    policies: &Policies,
    problems: &mut Problems<'_>,
) -> Option<Tier> {
    let all = given.all();
    let word = match &all[..] {
        [word] => Some(word),
        _ => None,
    };
    if word.is_some_and(|word| word.value == UNLIMITED) {
        return Some(Tier::Unlimited);
    }
    // A quota has a slash or a space, which no name has.
    let is_name = |word: &&At<String>| {
        word.value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    match (word.filter(is_name), name) {
        (Some(word), _) => {
            named(word, policies, problems).map(|policy| Tier::Policy(Box::new(policy.clone())))
        }
        // A mistake in its name is already reported.
        (None, Some(_)) => match quotas_under(&base?.policy, given, problems)? {
            KeyQuotas::Quotas(quotas) => Some(Tier::Quotas(quotas)),
            KeyQuotas::Unlimited => Some(Tier::Unlimited),
        },
        (None, None) => {
            let text = "these are quotas of no policy: name the one whose keys have them, as policy: api beside tiers";
            problems.error(given.place, text);
            None
        }
    }
}

/// The policy of this name.
fn named<'p>(
    name: &At<String>,
    policies: &'p Policies,
    problems: &mut Problems<'_>,
) -> Option<&'p KeyedPolicy> {
    if policies.room(&name.value).is_some() {
        let text =
            format!("{:?} is a waiting room, which is no tier: name it as the limit of a rule", name.value);
        problems.error(name.place, text);
        return None;
    }
    if !policies.has(&name.value) {
        let mut names: Vec<_> = policies.names().chain([UNLIMITED]).collect();
        names.sort_unstable();
        let instead = instead_of(&name.value, &names);
        problems.error(name.place, format!("there is no policy {:?}{instead}", short(&name.value)));
        return None;
    }
    let policy = policies.used(&name.value)?;
    if policy.defers {
        let text = format!("{:?} defers, which a tier cannot: name it as the limit of a rule", name.value);
        problems.error(name.place, text);
        return None;
    }
    Some(policy)
}

/// Warns of tiers in the file of API keys that the section does not know, because such keys are in the default tier.
fn warn_of_unknown(
    by: &[AttributeSource],
    given: &Named<At<OneOrMany>>,
    (name, default_tier): (&At<String>, &At<String>),
    problems: &mut Problems<'_>,
) {
    let listed = by.iter().filter_map(|by| match by {
        AttributeSource::ApiKey(keys) => Some(keys.tiers()),
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

impl Tier {
    fn policy(&self) -> Option<&KeyedPolicy> {
        match self {
            Self::Policy(policy) => Some(policy),
            Self::Quotas(_) | Self::Unlimited => None,
        }
    }

    fn policy_mut(&mut self) -> Option<&mut KeyedPolicy> {
        match self {
            Self::Policy(policy) => Some(policy),
            Self::Quotas(_) | Self::Unlimited => None,
        }
    }
}

impl TierSet {
    /// Returns tiers with a part of each quota, under names of their own.
    pub(super) fn share(&self, share: &Share) -> Result<Self, ConfigError> {
        let mut set = self.clone();
        for policy in set.policies_mut() {
            *policy = policy.share(share)?;
        }
        Ok(set)
    }

    /// The tiers in a rule with this key.
    pub(super) fn by(mut self, key: Option<&KeyWords>) -> Self {
        self.policies_mut().for_each(|policy| *policy = policy.by(key));
        self
    }

    /// The tiers where the program finds these keys.
    pub(super) fn given(&self, keys: &GivenKeys) -> Self {
        let mut set = self.clone();
        set.policies_mut().for_each(|policy| *policy = policy.given(keys));
        set
    }

    fn policies_mut(&mut self) -> impl Iterator<Item = &mut KeyedPolicy> {
        self.tiers.iter_mut().filter_map(|(_, tier)| tier.policy_mut()).chain(&mut self.base)
    }

    /// All policies that it may spend from.
    pub(super) fn policies(&self) -> impl Iterator<Item = &KeyedPolicy> {
        self.base.iter().chain(self.tiers.iter().filter_map(|(_, tier)| tier.policy()))
    }

    /// The index of the tier that a request spends from; `None` for the default one if the request names none. A key with quotas of its own
    /// has them in any tier.
    fn tier(&self, request: RequestView<'_>) -> Option<usize> {
        if self.base.as_ref().is_some_and(|base| base.has_own(request)) {
            return self.tiers.iter().position(|(_, tier)| matches!(tier, Tier::Quotas(_)));
        }
        self.plan.said(request)
    }

    /// The quotas of a request's key, if it has its own.
    fn quotas(&self, request: RequestView<'_>) -> ChosenQuotas {
        let policy = match &self.tiers[self.tier(request).unwrap_or(self.plan.default_tier)].1 {
            Tier::Quotas(_) => self.base.as_ref(),
            tier => tier.policy(),
        };
        policy.map_or(ChosenQuotas::Default, |policy| policy.choose(request))
    }

    /// The limit, if its policies are open.
    pub(super) fn limit(
        self,
        limiter: impl Fn(&str) -> Option<RateLimiter>,
    ) -> Result<Option<Limit>, ConfigError> {
        let open = |keyed: &KeyedPolicy| limiter(keyed.policy.name());
        let Some(first) = self.policies().find_map(open) else { return Ok(None) };
        let mut tiers = Tiers::builder(&first);
        for (name, tier) in &self.tiers {
            tiers = match (tier, &self.base) {
                (Tier::Quotas(quotas), Some(base)) => tiers.tier(name, base.part(quotas)?),
                (tier, _) => match tier.policy().and_then(open) {
                    Some(limiter) => tiers.tier_with(name, limiter),
                    None => tiers.unlimited(name),
                },
            };
        }
        let (this, default_tier) = (self.clone(), &self.plan.tiers[self.plan.default_tier]);
        let limit = Limit::tiered_async(tiers.default_tier(default_tier).build()?, move |request| {
            std::future::ready(this.tier(request).map(|tier| this.plan.tiers[tier].clone()))
        });
        let this = self.clone();
        Ok(Some(match self.policies().any(KeyedPolicy::takes_quotas) {
            true => limit.quota_by(move |request| this.quotas(request)),
            false => limit,
        }))
    }
}
