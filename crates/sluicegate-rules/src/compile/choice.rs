//! Finds the rules of a file that apply to a request: [`Choice`], used by the layer and for explanations alike.
//!
//! A [`Finder`] names the rules that can apply, so that a thousand rules are not tried one after the other. Then all conditions of these
//! rules are compared.
//!
//! # Groups and readings
//! Within a group, the first rule that matches applies; rules without a group all apply. A path with dots has two readings: as
//! written, and as resolved by a server. A rule applies if it matches one of them, so that no spelling of a path bypasses a limit; within a
//! group the first rule of each reading applies, unless both ask for the same.
//!
//! A condition on a body that cannot be read holds, so that limits apply; within a group it does not keep later rules from applying.
//!
//! # Descriptors
//! A descriptor of Envoy's protocol is a request of its own, to which only rules about descriptors apply. A rule that another one
//! `replaces` does not apply while that one applies to a descriptor of the same call.

use std::collections::{HashMap, HashSet};
use std::slice;
use std::sync::Arc;

use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::{Purpose, has_dots};
use sluicegate_tower::limits::{Select, Selected};
use smallvec::SmallVec;

use super::condition::{Matcher, Mismatch, RequestFacts};
use super::finder::{ConditionsLeft, Finder, RulePlaces};
use super::paths::{Comparison, MeantPath, Readings};
use super::rule::RuleAsks;
use crate::descriptor::RequestDescriptor;
use crate::variables::without_values;

/// Rules in their order, each with its conditions.
pub(crate) struct Choice {
    rules: Vec<Conditional>,
    finder: Finder,
    comparison: Comparison,
    /// Whether two rules may spend from one policy.
    shares_policies: bool,
    /// Whether any rule reads the path of a request.
    reads_path: bool,
    /// Whether any rule replaces another.
    replaces: bool,
    /// The variables whose values are shown by their names.
    hidden: Vec<(String, String)>,
}

/// The part of a rule that selects its requests.
#[derive(Default)]
pub(super) struct Conditional {
    pub name: String,
    /// The group; only its first matching rule applies.
    pub group: Option<String>,
    pub only_if: Matcher,
    /// Its settings; a door has none.
    pub asks: Option<Arc<RuleAsks>>,
    /// The names of all policies that it may spend from.
    pub policies: Vec<String>,
    /// The indices of the rules that do not apply to a call if this rule applies to one of its descriptors.
    pub replaces: Vec<usize>,
}

impl Choice {
    /// The conditions must have been read for the same comparison.
    pub(super) fn new(rules: Vec<Conditional>, comparison: Comparison, hidden: &[(String, String)]) -> Self {
        let finder = Finder::of(rules.iter().map(|rule| &rule.only_if), comparison);
        let shares_policies = is_shared(rules.iter());
        let reads_path = rules.iter().any(|rule| rule.only_if.reads_path());
        let replaces = rules.iter().any(|rule| !rule.replaces.is_empty());
        Self { rules, finder, comparison, shares_policies, reads_path, replaces, hidden: hidden.to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule reads the host of a request.
    pub(super) fn reads_host(&self) -> bool {
        self.rules.iter().any(|rule| rule.only_if.reads_host())
    }

    /// Names of rules, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.name)
    }

    /// The path of a request, if any rule reads it.
    #[inline]
    fn path<'a>(&self, request: RequestView<'a>) -> &'a str {
        if self.reads_path { request.path() } else { "" }
    }

    fn readings<'a>(&self, request: RequestView<'a>) -> Readings<'a> {
        self.comparison.readings(self.path(request))
    }

    /// The first rule with all conditions met.
    pub(crate) fn first(&self, request: RequestView<'_>) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let asking = RequestFacts::of(request);
        if let Some(reading) = self.comparison.only_reading(self.path(request)) {
            return self.finder.candidates(&asking, slice::from_ref(&reading), |rules| {
                rules.iter().copied().find(|rule| !self.mismatches(*rule, &asking, &reading))
            });
        }
        let readings = self.readings(request);
        self.finder.candidates(&asking, &readings, |rules| {
            rules.iter().copied().find(|rule| self.holds(*rule, &asking, &readings))
        })
    }

    /// Reports the rules that apply, in order.
    #[inline]
    pub(super) fn each_applying(&self, request: RequestView<'_>, mut applies: impl FnMut(usize)) {
        let path = self.path(request);
        let is_usual = self.comparison.is_only_reading(path) && RequestDescriptor::of(request).is_none();
        match self.finder.by_path_alone(path).filter(|_| is_usual) {
            Some([[rule], []] | [[], [rule]]) => applies(*rule),
            Some([found, others]) => self.firsts(merged(found, others), |_| true, |_| false, applies),
            None => self.all_applying(request).into_iter().for_each(&mut applies),
        }
    }

    /// The rules that apply.
    #[inline(never)]
    fn all_applying(&self, request: RequestView<'_>) -> RulePlaces {
        let asking = RequestFacts::of(request);
        match self.comparison.only_reading(self.path(request)) {
            Some(reading) if !self.replaces => self.applying_in(&asking, &reading),
            _ => self.not_replaced(&asking),
        }
    }

    /// The rules that apply and are not replaced by another one.
    fn not_replaced(&self, asking: &RequestFacts<'_>) -> RulePlaces {
        let mut applying = self.applying_to(asking, &self.readings(asking.request));
        if let Some(described) = asking.described.filter(|_| self.replaces) {
            let replacing = self.replacing(described);
            applying.retain(|rule| !replacing.iter().any(|replacing| self.replaces(*replacing, *rule)));
        }
        applying
    }

    /// The rules with `replaces` that apply to any of the descriptors of one call.
    fn replacing(&self, described: &RequestDescriptor) -> RulePlaces {
        let requests = described.siblings().requests();
        let applying = requests.flat_map(|request| {
            let request = RequestView::from(&request);
            self.applying_to(&RequestFacts::of(request), &self.readings(request))
        });
        applying.filter(|rule| !self.rules[*rule].replaces.is_empty()).collect()
    }

    fn replaces(&self, replacing: usize, rule: usize) -> bool {
        self.rules[replacing].replaces.contains(&rule)
    }

    /// Whether the two readings of a path with dots meet different rules, two of which may spend from one enforced policy. Neither
    /// rule may be left out, because the server that resolves the dots is unknown, and the request cannot spend from both.
    pub(super) fn is_torn(&self, request: RequestView<'_>, counts: impl Fn(&str) -> bool) -> bool {
        if !self.shares_policies || !has_dots(request.path()) {
            return false;
        }
        let (asking, readings) = (RequestFacts::of(request), self.readings(request));
        let mut readings = readings.iter().map(|reading| self.applying_in(&asking, reading));
        let (Some(one), Some(other)) = (readings.next(), readings.next()) else { return false };
        if one == other {
            return false;
        }
        let mut spending: HashMap<&str, RulePlaces> = HashMap::new();
        for rule in one {
            for policy in &self.rules[rule].policies {
                spending.entry(policy).or_default().push(rule);
            }
        }
        other.iter().any(|rule| {
            self.rules[*rule].policies.iter().any(|policy| {
                let mut beside = spending.get(&**policy).into_iter().flatten();
                beside.any(|before| !self.are_one(*before, *rule)) && counts(policy)
            })
        })
    }

    /// Whether a request under both rules asks only once.
    fn are_one(&self, one: usize, other: usize) -> bool {
        let [first, second] = [one, other].map(|rule| &self.rules[rule]);
        one == other || first.group.is_some() && first.group == second.group && first.asks == second.asks
    }

    /// The rules that apply if the path is read in this way.
    fn applying_in(&self, asking: &RequestFacts<'_>, reading: &MeantPath<'_>) -> RulePlaces {
        let mut applying = RulePlaces::new();
        self.finder.candidates(asking, slice::from_ref(reading), |rules| {
            self.firsts(
                rules.iter().copied(),
                |rule| !self.mismatches(rule, asking, reading),
                |rule| self.is_in_doubt(rule, asking),
                |rule| applying.push(rule),
            );
        });
        self.leave_out_doubtful(&mut applying, asking);
        applying
    }

    /// Whether a rule that applies does so because a field of the body cannot be read. Later rules of its group then apply, too: otherwise the
    /// client would choose among them.
    fn is_in_doubt(&self, rule: usize, asking: &RequestFacts<'_>) -> bool {
        self.rules[rule].only_if.is_in_doubt(asking.request)
    }

    /// Leaves out rules in doubt that spend from a policy of another rule: a request spends from each policy once.
    fn leave_out_doubtful(&self, applying: &mut RulePlaces, asking: &RequestFacts<'_>) {
        if !applying.iter().any(|rule| self.is_in_doubt(*rule, asking)) {
            return;
        }
        let (doubtful, certain): (RulePlaces, RulePlaces) =
            applying.iter().copied().partition(|rule| self.is_in_doubt(*rule, asking));
        let mut spent: HashSet<&String> =
            certain.iter().flat_map(|rule| &self.rules[*rule].policies).collect();
        for rule in doubtful {
            let policies = &self.rules[rule].policies;
            match policies.iter().any(|policy| spent.contains(policy)) {
                true => applying.retain(|other| *other != rule),
                false => spent.extend(policies),
            }
        }
    }

    /// Reports the rules that hold, of each group only the first, and those in doubt before it.
    #[inline]
    fn firsts(
        &self,
        rules: impl Iterator<Item = usize>,
        holds: impl Fn(usize) -> bool,
        is_in_doubt: impl Fn(usize) -> bool,
        mut applies: impl FnMut(usize),
    ) {
        let mut groups: SmallVec<[&str; 4]> = SmallVec::new();
        for rule in rules {
            let group = self.rules[rule].group.as_deref();
            let is_first = !group.is_some_and(|group| groups.contains(&group));
            if is_first && holds(rule) {
                groups.extend(group.filter(|_| !is_in_doubt(rule)));
                applies(rule);
            }
        }
    }

    /// Whether a path may be [torn](Self::is_torn).
    pub(super) fn may_be_torn(&self) -> bool {
        self.shares_policies
    }

    /// Whether all conditions of a rule hold in one reading of the path; an exemption must hold in each.
    fn holds(&self, rule: usize, asking: &RequestFacts<'_>, readings: &[MeantPath<'_>]) -> bool {
        let is_met = |reading| self.mismatch(rule, asking, reading).is_none();
        match self.comparison.purpose {
            Purpose::Exempt => readings.iter().all(is_met),
            Purpose::Limit | Purpose::Deny => readings.iter().any(is_met),
        }
    }

    /// Whether a candidate has a condition that does not hold, if this is the reading that it was found in.
    #[inline]
    fn mismatches(&self, rule: usize, asking: &RequestFacts<'_>, reading: &MeantPath<'_>) -> bool {
        let left = self.finder.left(rule);
        left != ConditionsLeft::None && self.mismatches_in(left, rule, asking, reading)
    }

    #[inline(never)]
    fn mismatches_in(
        &self,
        left: ConditionsLeft,
        rule: usize,
        asking: &RequestFacts<'_>,
        reading: &MeantPath<'_>,
    ) -> bool {
        match left {
            ConditionsLeft::None => false,
            ConditionsLeft::ButPath => self.rules[rule].only_if.other_mismatch(asking, reading).is_some(),
            ConditionsLeft::All => self.mismatch(rule, asking, reading).is_some(),
        }
    }

    fn mismatch<'a>(
        &'a self,
        rule: usize,
        asking: &'a RequestFacts<'_>,
        reading: &'a MeantPath<'_>,
    ) -> Option<Mismatch<'a>> {
        self.rules[rule].only_if.mismatch(asking, reading)
    }

    /// The rules that apply in any reading of the path, and within a group the first of each reading: no rule is missing, however the path
    /// is resolved later. What two of them would ask alike is asked only once.
    fn applying_to(&self, asking: &RequestFacts<'_>, readings: &[MeantPath<'_>]) -> RulePlaces {
        // Most paths have no dots.
        if let [reading] = readings {
            return self.applying_in(asking, reading);
        }
        let mut all: RulePlaces =
            readings.iter().flat_map(|reading| self.applying_in(asking, reading)).collect();
        all.sort_unstable();
        all.dedup();
        let mut applying = RulePlaces::new();
        for rule in all {
            let is_asked = |first: &usize| self.are_one(*first, rule) && !self.is_in_doubt(*first, asking);
            if !applying.iter().any(is_asked) {
                applying.push(rule);
            }
        }
        self.leave_out_doubtful(&mut applying, asking);
        applying
    }
}

/// The rules of two ordered lists, in order.
fn merged(mut one: &[usize], mut other: &[usize]) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let is_other = one.first().is_none_or(|one| other.first().is_some_and(|other| other < one));
        if is_other { other.split_off_first() } else { one.split_off_first() }.copied()
    })
}

/// Whether two of these rules may spend from one policy.
fn is_shared<'a>(mut rules: impl Iterator<Item = &'a Conditional>) -> bool {
    let mut spent = HashSet::new();
    rules.any(|rule| {
        let own: HashSet<&str> = rule.policies.iter().map(|policy| &**policy).collect();
        own.into_iter().any(|policy| !spent.insert(policy))
    })
}

impl Select for Choice {
    fn select(&self, request: RequestView<'_>) -> Selected {
        let mut selected = Selected::default();
        self.each_applying(request, |rule| selected.push(rule));
        selected
    }

    fn why_not(&self, request: RequestView<'_>, member: usize) -> Option<String> {
        let (asking, readings) = (RequestFacts::of(request), self.readings(request));
        let rule = self.rules.get(member)?;
        if !self.holds(member, &asking, &readings) {
            let mut why = readings.iter().filter_map(|reading| self.mismatch(member, &asking, reading));
            return why.next().map(|why| without_values(why.to_string(), &self.hidden));
        }
        let applying = self.applying_to(&asking, &readings);
        if applying.contains(&member) {
            let replacing = asking.described.map(|described| self.replacing(described)).unwrap_or_default();
            let by = replacing.into_iter().find(|replacing| self.replaces(*replacing, member))?;
            let by = &self.rules[by].name;
            return Some(format!("rule {by} applies to a descriptor of this call, and replaces it"));
        }
        if self.is_in_doubt(member, &asking) {
            return Some(
                "the body cannot be read, and another rule spends from a policy of this one".to_owned(),
            );
        }
        let group = rule.group.as_deref()?;
        let first = applying.into_iter().find(|first| self.rules[*first].group.as_deref() == Some(group))?;
        Some(format!("of group {group}, rule {} applies", self.rules[first].name))
    }

    fn is_certain(&self, member: usize) -> bool {
        self.rules.get(member).is_some_and(|rule| rule.group.is_none() && rule.only_if.size() == 0)
    }
}
