//! Policies with keys that may have quotas of their own, from the file or from the request.
//!
//! All keys stay in the buckets of one policy, whatever their quotas, so that a key with changed quotas keeps its spent units.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::StatusCode;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::Quotas;
use sluicegate_core::{ConfigError, Policy, Quota, RateLimiter};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::ChosenQuotas;

use super::by::AttributeSource;
use super::keys::{GivenKeys, KeyWords, Keys};
use super::quotas::{KeyQuotas, quotas_under};
use crate::at::At;
use crate::error::Problems;
use crate::schema::{Named, OneOrMany};
use crate::shown::short;

/// Quotas of single keys, by the operators' names of the keys.
type SingleKeys = HashMap<String, KeyQuotas>;

/// The most different quotas of keys that a store supports at once.
const MOST: usize = 65_535;

/// The part of its limits that a rule has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The name of the rule.
    pub rule: String,
    pub parts: u64,
    pub whole: u64,
}

/// A policy that rules spend from, with the quotas of keys that have their own.
#[derive(Clone)]
pub(crate) struct KeyedPolicy {
    pub policy: Policy,
    single: Arc<SingleKeys>,
    /// The quotas that keys have by their tier.
    of_tiers: Arc<[Quotas]>,
    /// The places where a request may bring quotas for its key; the first one present counts.
    by: Arc<[AttributeSource]>,
    /// The key of its rule, if the operators' name of it matters.
    key: Option<KeyWords>,
    /// The whole policy, if this is a share of it.
    part_of: Option<Arc<(Policy, Share)>>,
    /// Whether its requests are kept for later when they exceed it.
    pub defers: bool,
    /// How its keys start where a reload changes its quotas.
    pub inherit: Inherit,
    /// The status of its refusals, if it is not 429.
    pub status: Option<StatusCode>,
}

/// The policies with `overrides`, by name.
#[derive(Default)]
pub(crate) struct WithKeys(HashMap<String, KeyedPolicy>);

impl WithKeys {
    pub(super) fn among<'a>(policies: impl Iterator<Item = &'a KeyedPolicy>) -> Self {
        let naming = policies.filter(|keyed| !keyed.single.is_empty());
        Self(naming.map(|keyed| (keyed.policy.name().to_owned(), keyed.clone())).collect())
    }

    /// The quotas of this key of a policy.
    pub(crate) fn quotas(&self, policy: &str, key: &str) -> ChosenQuotas {
        self.0.get(policy).map_or(ChosenQuotas::Default, |policy| policy.choose_for(key))
    }
}

impl KeyedPolicy {
    /// A policy with its `overrides` and its `quota_by`. All of their mistakes are reported.
    pub(super) fn of(
        policy: Policy,
        (name, overrides, quota_by): (&At<String>, &Named<At<OneOrMany>>, Option<&At<OneOrMany>>),
        keys: &Keys,
        problems: &mut Problems<'_>,
    ) -> Self {
        let words = quota_by.map(At::all).unwrap_or_default();
        if let Some(empty) = quota_by.filter(|_| words.is_empty()) {
            problems
                .error(empty.place, "an empty list says nothing: leave the word out, or write what is meant");
        }
        let by: Vec<AttributeSource> =
            words.iter().filter_map(|word| AttributeSource::of_quotas(word, keys, problems)).collect();
        for by in &by {
            if let AttributeSource::ApiKey(listed) = by {
                listed.check_quotas(&policy, problems);
            }
        }
        let single = Arc::new(single_keys(&policy, overrides, problems));
        let takes = quota_by.is_some() || !single.is_empty();
        let (of_tiers, by) = (Arc::default(), by.into());
        let (key, part_of, defers, inherit) = (None, None, false, Inherit::Spent);
        let mut keyed = Self { policy, single, of_tiers, by, key, part_of, defers, inherit, status: None };
        if takes {
            keyed.take_quotas();
        }
        let different = keyed.known().len();
        if different > MOST {
            let text =
                format!("its keys have {different} different quotas, and at most {MOST} are in use at once");
            problems.error(name.place, text);
        }
        keyed
    }

    /// Adds the quotas that keys have by their tier, unless they have their own.
    pub(super) fn with_tiers(&self, of_tiers: impl Iterator<Item = Quotas>) -> Self {
        let mut with_tiers = Self { of_tiers: of_tiers.collect(), ..self.clone() };
        with_tiers.take_quotas();
        with_tiers
    }

    /// Whether a key may have quotas of its own.
    pub(super) fn takes_quotas(&self) -> bool {
        self.policy.takes_quotas()
    }

    /// Allows keys to have quotas of their own.
    pub(super) fn take_quotas(&mut self) {
        self.policy = self.policy.taking_quotas();
    }

    /// Whether quotas of keys are read from the file of API keys.
    pub(super) fn reads_api_keys(&self) -> bool {
        self.by.iter().any(|by| matches!(by, AttributeSource::ApiKey(_)))
    }

    /// The limit, after the policy is opened.
    pub(super) fn limit(self, limiter: RateLimiter) -> Limit {
        let limit = Limit::new(limiter);
        if self.takes_quotas() { limit.quota_by(move |request| self.choose(request)) } else { limit }
    }

    /// Returns a policy with a part of each quota, in buckets of its own.
    pub(super) fn share(&self, share: &Share) -> Result<Self, ConfigError> {
        let Share { rule, parts, whole } = share;
        let policy = self.policy.share(format!("{}.{rule}", self.policy.name()), *parts, *whole)?;
        let part_of = Some(Arc::new((self.policy.clone(), share.clone())));
        let share = Self { policy, part_of, ..self.clone() };
        share.known().into_iter().try_for_each(|quotas| share.part(quotas).map(drop))?;
        Ok(share)
    }

    /// The policy in a rule with this key.
    pub(super) fn by(&self, key: Option<&KeyWords>) -> Self {
        Self { key: key.filter(|_| !self.single.is_empty()).cloned(), ..self.clone() }
    }

    /// The policy where the program finds these keys.
    pub(super) fn given(&self, keys: &GivenKeys) -> Self {
        Self { key: self.key.as_ref().map(|key| key.given(keys)), ..self.clone() }
    }

    /// Whether the key of a request has quotas of its own, whatever its tier.
    pub(super) fn has_own(&self, request: RequestView<'_>) -> bool {
        !matches!(self.choose(request), ChosenQuotas::Default)
    }

    /// The quotas of a request's key.
    pub(super) fn choose(&self, request: RequestView<'_>) -> ChosenQuotas {
        let name = self.key.as_ref().and_then(|key| key.name(request));
        let single = name.and_then(|name| self.single.get(&name).cloned());
        self.chosen(single.map(Ok).or_else(|| self.by.iter().find_map(|by| by.quotas(request))))
    }

    /// The quotas of this key by `overrides` alone.
    fn choose_for(&self, key: &str) -> ChosenQuotas {
        self.chosen(self.single.get(key).cloned().map(Ok))
    }

    fn chosen(&self, own: Option<Result<KeyQuotas, ConfigError>>) -> ChosenQuotas {
        match own {
            None => ChosenQuotas::Default,
            Some(Ok(KeyQuotas::Quotas(quotas))) => self.part(&quotas).into(),
            Some(Ok(KeyQuotas::Unlimited)) => ChosenQuotas::Unlimited,
            Some(Err(error)) => ChosenQuotas::Mistake(error),
        }
    }

    /// The policy under each of the quotas that the file gives to keys.
    pub(super) fn of_keys_with_own(&self) -> impl Iterator<Item = Policy> {
        let of = |quotas: &Quotas| self.policy.under(&self.part(quotas).ok()?).ok();
        self.known().into_iter().filter_map(of)
    }

    /// The quotas of keys that the file names, before they are shared.
    fn known(&self) -> HashSet<&Quotas> {
        let listed = self.by.iter().filter_map(|by| match by {
            AttributeSource::ApiKey(listed) => Some(listed.quotas()),
            _ => None,
        });
        let all = self.single.values().chain(listed.flatten());
        all.filter_map(KeyQuotas::quotas).chain(&*self.of_tiers).collect()
    }

    /// The part of a key's quotas that this share has.
    pub(super) fn part(&self, quotas: &Quotas) -> Result<Quotas, ConfigError> {
        let Some((policy, Share { parts, whole, .. })) = self.part_of.as_deref() else {
            return Ok(quotas.clone());
        };
        let share = policy.under(quotas)?.share(self.policy.name(), *parts, *whole)?;
        let quotas: Vec<Quota> = share.quotas().iter().map(|quota| quota.quota()).collect();
        Ok(quotas.into())
    }
}

/// The quotas of the named keys that the policy can have.
fn single_keys(policy: &Policy, section: &Named<At<OneOrMany>>, problems: &mut Problems<'_>) -> SingleKeys {
    let each = section.0.iter();
    each.filter_map(|(key, quotas)| Some((key.value.clone(), quotas_under(policy, quotas, problems)?)))
        .collect()
}

/// The share of a rule, such as 1/10.
pub(super) fn share(rule: &str, text: &At<String>, problems: &mut Problems<'_>) -> Option<Share> {
    let numbers =
        text.value.split_once('/').map(|(parts, whole)| (parts.trim().parse(), whole.trim().parse()));
    match numbers {
        Some((Ok(parts), Ok(whole))) if parts > 0 && parts <= whole => {
            Some(Share { rule: rule.to_owned(), parts, whole })
        }
        _ => {
            let shown = short(&text.value);
            problems.error(text.place, format!("{shown:?} is not a share: write a part of a whole, as 1/10"));
            None
        }
    }
}
