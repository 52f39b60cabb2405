//! Finds the rules of a file that apply to a request: [`Choice`], used by the layer and for explanations alike.
//!
//! A thousand rules are not tried one after the other. Each is found by one of its conditions, the one that the fewest other rules share:
//! by its path in a tree, or by a host, a header field, a parameter, a method or a tier in a table. Then all of its conditions are
//! compared. A rule without any of these is compared with each request.
//!
//! # Groups and readings
//! Within a group, the first rule that matches applies; rules without a group all apply. A path with dots has two readings: as it is
//! written, and as a server resolves it. A rule applies if it matches one of them, so that no spelling of a path bypasses a limit; within a
//! group the first rule of each reading applies, unless both ask for the same.
//!
//! # Descriptors
//! A descriptor of Envoy's protocol is a request of its own, to which only rules about descriptors apply. A rule that another one
//! `replaces` does not apply while that one applies to a descriptor of the same call.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::{Purpose, Sense, has_dots};
use sluicegate_tower::limits::{Select, Selected};
use smallvec::SmallVec;

use super::FastMap;
use super::condition::{Comparison, InTiers, Matcher, MeantPath, Mismatch, RequestFacts};
use super::paths::PathTree;
use super::plan::TierPlan;
use crate::descriptor::RequestDescriptor;

/// Rules in their order, each with its conditions.
pub(crate) struct Choice {
    rules: Vec<Conditional>,
    finder: Finder,
    comparison: Comparison,
    /// Whether two rules may spend from one policy.
    shares_policies: bool,
    /// Whether any rule looks at the path of a request.
    reads_path: bool,
    /// Whether any rule replaces another.
    replaces: bool,
}

/// The part of a rule that says to which requests it applies.
#[derive(Default)]
pub(super) struct Conditional {
    pub name: String,
    /// The group, of which only the first rule that matches applies.
    pub group: Option<String>,
    pub only_if: Matcher,
    /// Its limit and key, written out: rules of a group with the same text ask a request only once.
    pub asks: String,
    /// The names of all policies that it may spend from.
    pub policies: Vec<String>,
    /// The places of the rules that do not apply to a call if one of its descriptors meets this rule.
    pub replaces: Vec<usize>,
}

/// Places of rules, by a condition that each of them has.
#[derive(Default)]
struct Finder {
    paths: PathTree,
    hosts: FastMap<String, Vec<usize>>,
    headers: Vec<(HeaderName, FastMap<HeaderValue, Vec<usize>>)>,
    query: FastMap<(String, String), Vec<usize>>,
    methods: FastMap<Method, Vec<usize>>,
    /// Rules by the place of the tier.
    tiers: Vec<(Arc<TierPlan>, Vec<Vec<usize>>)>,
    /// Rules that are compared with each request.
    others: Vec<usize>,
    /// Rules about descriptors, by the key and the value of an entry.
    entries: FastMap<String, FastMap<String, Vec<usize>>>,
    /// Rules about descriptors that are looked at for each.
    descriptors: Vec<usize>,
    /// Whether each rule is found by its path.
    by_path: Vec<bool>,
}

/// The values that a rule can be found by: one of these values has to be there.
#[derive(Clone, Copy)]
enum FindBy<'a> {
    Path,
    Host,
    Header(&'a (HeaderName, HeaderValue)),
    Query(&'a (String, String)),
    Method,
    Tiers(&'a InTiers),
}

type RulePlaces = SmallVec<[usize; 8]>;

impl Choice {
    /// The conditions must have been read for the same comparison.
    pub(super) fn new(rules: Vec<Conditional>, comparison: Comparison) -> Self {
        let finder = Finder::of(&rules, comparison);
        let shares_policies = is_shared(rules.iter());
        let reads_path = rules.iter().any(|rule| rule.only_if.reads_path());
        let replaces = rules.iter().any(|rule| !rule.replaces.is_empty());
        Self { rules, finder, comparison, shares_policies, reads_path, replaces }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule looks at the host that a request names.
    pub(super) fn reads_host(&self) -> bool {
        self.rules.iter().any(|rule| rule.only_if.reads_host())
    }

    /// Names of rules, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.name)
    }

    fn asking<'a>(&self, request: RequestView<'a>) -> RequestFacts<'a> {
        RequestFacts::of(request, self.reads_path, self.comparison)
    }

    /// The first rule of which all conditions hold.
    pub(crate) fn first(&self, request: RequestView<'_>) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let asking = self.asking(request);
        self.finder.candidates(&asking).into_iter().find(|rule| self.holds(*rule, &asking))
    }

    /// The rules that apply, in order.
    pub(super) fn applying(&self, request: RequestView<'_>) -> impl Iterator<Item = usize> {
        let asking = self.asking(request);
        let mut applying = self.applying_to(&asking);
        if let Some(described) = asking.described.filter(|_| self.replaces) {
            let replacing = self.replacing(described);
            applying.retain(|rule| !replacing.iter().any(|replacing| self.replaces(*replacing, *rule)));
        }
        applying.into_iter()
    }

    /// The rules with `replaces` that apply to any of the descriptors of one call.
    fn replacing(&self, described: &RequestDescriptor) -> RulePlaces {
        let requests = described.siblings().requests();
        let applying = requests.flat_map(|request| self.applying_to(&self.asking((&request).into())));
        applying.filter(|rule| !self.rules[*rule].replaces.is_empty()).collect()
    }

    fn replaces(&self, replacing: usize, rule: usize) -> bool {
        self.rules[replacing].replaces.contains(&rule)
    }

    /// Whether the two readings of a path with dots meet different rules, two of which may spend from one policy that counts here. Neither
    /// rule may be left out then, because nobody knows who resolves the dots, and the request cannot spend from both.
    pub(super) fn is_torn(&self, request: RequestView<'_>, counts: impl Fn(&str) -> bool) -> bool {
        if !self.shares_policies || !has_dots(request.path()) {
            return false;
        }
        let asking = self.asking(request);
        let mut readings = asking.readings.iter().map(|reading| self.applying_in(&asking, reading));
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

    /// Whether a request that meets both rules asks only once.
    fn are_one(&self, one: usize, other: usize) -> bool {
        let [first, second] = [one, other].map(|rule| &self.rules[rule]);
        one == other || first.group.is_some() && first.group == second.group && first.asks == second.asks
    }

    /// The rules that apply if the path is read in this way.
    fn applying_in(&self, asking: &RequestFacts<'_>, reading: &MeantPath<'_>) -> RulePlaces {
        let mut groups: SmallVec<[&str; 4]> = SmallVec::new();
        let mut applying = self.finder.candidates(asking);
        applying.retain(|rule| {
            let group = self.rules[*rule].group.as_deref();
            let is_first = !group.is_some_and(|group| groups.contains(&group));
            let applies = is_first && !self.mismatches(*rule, asking, reading);
            groups.extend(group.filter(|_| applies));
            applies
        });
        applying
    }

    /// Whether a path may be [torn](Self::is_torn).
    pub(super) fn may_be_torn(&self) -> bool {
        self.shares_policies
    }

    /// Whether all conditions of a rule hold in one reading of the path; an exemption must hold in each.
    fn holds(&self, rule: usize, asking: &RequestFacts<'_>) -> bool {
        let is_met = |reading| self.mismatch(rule, asking, reading).is_none();
        match self.comparison.purpose {
            Purpose::Exempt => asking.readings.iter().all(is_met),
            Purpose::Limit | Purpose::Deny => asking.readings.iter().any(is_met),
        }
    }

    /// Whether a candidate has a condition that does not hold in this reading of the path.
    fn mismatches(&self, rule: usize, asking: &RequestFacts<'_>, reading: &MeantPath<'_>) -> bool {
        let Conditional { only_if, .. } = &self.rules[rule];
        match self.finder.by_path[rule] && asking.readings.len() == 1 {
            true => only_if.other_mismatch(asking, reading).is_some(),
            false => only_if.mismatch(asking, reading).is_some(),
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
    /// is resolved behind the layer.
    fn applying_to(&self, asking: &RequestFacts<'_>) -> RulePlaces {
        // Most paths have no dots.
        if let [reading] = &asking.readings[..] {
            return self.applying_in(asking, reading);
        }
        let mut met: SmallVec<[(usize, &str, usize); 4]> = SmallVec::new();
        let mut applying = self.finder.candidates(asking);
        applying.retain(|rule| {
            let group = self.rules[*rule].group.as_deref();
            let mut applies = false;
            for (place, reading) in asking.readings.iter().enumerate() {
                let is_met = |(other, of, _): &(usize, &str, usize)| *other == place && Some(*of) == group;
                let is_first = !met.iter().any(is_met);
                if is_first && self.mismatch(*rule, asking, reading).is_none() {
                    met.extend(group.map(|group| (place, group, *rule)));
                    applies = true;
                }
            }
            // An ask that the first rule of the other reading has, too, is asked once.
            let is_asked = |(_, of, other): &(usize, &str, usize)| {
                other != rule && Some(*of) == group && self.rules[*other].asks == self.rules[*rule].asks
            };
            applies && !met.iter().any(is_asked)
        });
        applying
    }
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
        self.applying(request).collect()
    }

    fn why_not(&self, request: RequestView<'_>, member: usize) -> Option<String> {
        let asking = self.asking(request);
        let rule = self.rules.get(member)?;
        if !self.holds(member, &asking) {
            let mut why =
                asking.readings.iter().filter_map(|reading| self.mismatch(member, &asking, reading));
            return why.next().map(|why| why.to_string());
        }
        let applying = self.applying_to(&asking);
        if applying.contains(&member) {
            let replacing = asking.described.map(|described| self.replacing(described)).unwrap_or_default();
            let by = replacing.into_iter().find(|replacing| self.replaces(*replacing, member))?;
            let by = &self.rules[by].name;
            return Some(format!("rule {by} applies to a descriptor of this call, and replaces it"));
        }
        let group = rule.group.as_deref()?;
        let first = applying.into_iter().find(|first| self.rules[*first].group.as_deref() == Some(group))?;
        Some(format!("of group {group}, rule {} applies", self.rules[first].name))
    }

    fn is_certain(&self, member: usize) -> bool {
        self.rules.get(member).is_some_and(|rule| rule.group.is_none() && rule.only_if.is_empty())
    }
}

impl Finder {
    fn of(rules: &[Conditional], comparison: Comparison) -> Self {
        let rarest = Rarest::among(rules);
        let mut finder = Self { paths: PathTree::new(comparison.fold(Sense::In)), ..Self::default() };
        for (place, rule) in rules.iter().enumerate() {
            let matcher = &rule.only_if;
            if let Some(pattern) = &matcher.descriptor {
                finder.by_path.push(false);
                match pattern.entries.as_ref().and_then(|entries| entries.exact()) {
                    Some((key, values)) => {
                        let known = finder.entries.entry(key.to_owned()).or_default();
                        values.for_each(|value| add(known, value.to_owned(), place));
                    }
                    None => finder.descriptors.push(place),
                }
                continue;
            }
            let by = rarest.of(matcher);
            finder.by_path.push(matches!(by, Some(FindBy::Path)));
            match by {
                None => finder.others.push(place),
                Some(FindBy::Path) => {
                    matcher.paths.iter().flatten().for_each(|path| finder.paths.add(path, place));
                }
                Some(FindBy::Host) => {
                    matcher.hosts.iter().for_each(|host| add(&mut finder.hosts, host.clone(), place));
                }
                Some(FindBy::Header((name, value))) => {
                    let known = finder.headers.iter().position(|(known, _)| known == name);
                    let at = known.unwrap_or_else(|| {
                        finder.headers.push((name.clone(), FastMap::default()));
                        finder.headers.len() - 1
                    });
                    add(&mut finder.headers[at].1, value.clone(), place);
                }
                Some(FindBy::Query(pair)) => add(&mut finder.query, pair.clone(), place),
                Some(FindBy::Method) => {
                    matcher.methods.iter().for_each(|method| add(&mut finder.methods, method.clone(), place));
                }
                Some(FindBy::Tiers(InTiers { plan, wanted })) => {
                    let known = finder.tiers.iter().position(|(known, _)| known.place == plan.place);
                    let at = known.unwrap_or_else(|| {
                        finder.tiers.push((Arc::clone(plan), vec![Vec::new(); plan.tiers.len()]));
                        finder.tiers.len() - 1
                    });
                    wanted.iter().for_each(|tier| finder.tiers[at].1[*tier].push(place));
                }
            }
        }
        finder
    }

    /// Every rule that can apply, in order, and others besides.
    fn candidates(&self, asking: &RequestFacts<'_>) -> RulePlaces {
        if let Some(described) = asking.described {
            return self.candidates_of(described);
        }
        let mut found = RulePlaces::from_slice(&self.others);
        for reading in &asking.readings {
            self.paths
                .find(reading.path(Sense::In), |places| places.iter().for_each(|place| found.push(*place)));
        }
        let mut take = |places: Option<&Vec<usize>>| found.extend(places.into_iter().flatten().copied());
        if !self.hosts.is_empty() {
            take(asking.host().and_then(|host| self.hosts.get(host)));
        }
        for (name, values) in &self.headers {
            asking.request.headers.get_all(name).iter().for_each(|value| take(values.get(value)));
        }
        if !self.query.is_empty() {
            asking.parameters().for_each(|pair| take(self.query.get(&pair)));
        }
        if !self.methods.is_empty() {
            take(self.methods.get(asking.request.method));
        }
        for (plan, places) in &self.tiers {
            take(places.get(asking.tier(plan)));
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// Every rule that can apply to a descriptor, in order, and others besides.
    fn candidates_of(&self, described: &RequestDescriptor) -> RulePlaces {
        let mut found = RulePlaces::from_slice(&self.descriptors);
        for (key, value) in described.entries() {
            let places = self.entries.get(key).and_then(|values| values.get(value));
            found.extend(places.into_iter().flatten().copied());
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn add<K: Hash + Eq>(places: &mut FastMap<K, Vec<usize>>, value: K, place: usize) {
    places.entry(value).or_default().push(place);
}

/// Counts the rules that have a value among their conditions.
#[derive(Default)]
struct Rarest(HashMap<IndexedValue, usize>);

#[derive(PartialEq, Eq, Hash)]
enum IndexedValue {
    Path(String),
    Host(String),
    Header(HeaderName, HeaderValue),
    Query(String, String),
    Method(Method),
    /// The places of a plan and of a tier.
    Tier(usize, usize),
}

impl Rarest {
    fn among(rules: &[Conditional]) -> Self {
        let mut counts = Self::default();
        for rule in rules {
            for value in ways(&rule.only_if).into_iter().flat_map(|by| values(&rule.only_if, by)) {
                *counts.0.entry(value).or_default() += 1;
            }
        }
        counts
    }

    /// The condition that finds this rule with the fewest other rules.
    fn of<'a>(&self, matcher: &'a Matcher) -> Option<FindBy<'a>> {
        let count = |by: &FindBy<'a>| {
            let counts =
                values(matcher, *by).into_iter().map(|value| self.0.get(&value).copied().unwrap_or(0));
            counts.sum::<usize>()
        };
        ways(matcher).into_iter().min_by_key(count)
    }
}

/// The conditions by which a rule can be found; where two are equally rare, the first is cheaper.
fn ways(matcher: &Matcher) -> Vec<FindBy<'_>> {
    let mut ways = Vec::new();
    ways.extend(matcher.paths.is_some().then_some(FindBy::Path));
    ways.extend((!matcher.methods.is_empty()).then_some(FindBy::Method));
    ways.extend((!matcher.hosts.is_empty()).then_some(FindBy::Host));
    ways.extend(matcher.headers.iter().map(FindBy::Header));
    ways.extend(matcher.query.iter().map(FindBy::Query));
    // Reading a tier may mean verifying a token: not for requests that another condition rules out.
    if ways.is_empty() {
        ways.extend(matcher.tiers.iter().map(FindBy::Tiers));
    }
    ways
}

fn values(matcher: &Matcher, by: FindBy<'_>) -> Vec<IndexedValue> {
    match by {
        FindBy::Path => {
            matcher.paths.iter().flatten().map(|path| IndexedValue::Path(path.to_string())).collect()
        }
        FindBy::Host => matcher.hosts.iter().cloned().map(IndexedValue::Host).collect(),
        FindBy::Header((name, value)) => vec![IndexedValue::Header(name.clone(), value.clone())],
        FindBy::Query((name, value)) => vec![IndexedValue::Query(name.clone(), value.clone())],
        FindBy::Method => matcher.methods.iter().cloned().map(IndexedValue::Method).collect(),
        FindBy::Tiers(InTiers { plan, wanted }) => {
            wanted.iter().map(|tier| IndexedValue::Tier(plan.place, *tier)).collect()
        }
    }
}
