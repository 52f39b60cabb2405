//! Finds rules by one of their conditions: [`Finder`].
//!
//! A thousand rules are not tried one after the other. Each is found by one of its conditions, the one that the fewest other rules share:
//! by its path in a tree, or by a host or a header field in a table. A rule without any of these is compared with each request.

use std::collections::HashMap;
use std::hash::Hash;

use http::HeaderName;
use sluicegate_tower::limits::path::Sense;
use smallvec::SmallVec;

use super::condition::{Matcher, RequestFacts};
use super::paths::{Comparison, FastMap, MeantPath, PathTree, note};
use super::pattern::{FieldPattern, PathWanted, TextPattern};
use crate::descriptor::{RequestDescriptor, meanings};

/// Indices of rules, by a condition of each.
#[derive(Default)]
pub(super) struct Finder {
    paths: PathTree,
    hosts: FastMap<String, Vec<usize>>,
    headers: Vec<(HeaderName, FastMap<String, Vec<usize>>)>,
    /// Rules that are compared with each request.
    others: Vec<usize>,
    /// Rules about descriptors, by the key and the value of an entry.
    entries: FastMap<String, FastMap<String, Vec<usize>>>,
    /// Rules that are compared with each descriptor.
    descriptors: Vec<usize>,
    /// The way in which paths in entries are compared.
    comparison: Comparison,
    /// Whether no rule is found by another condition than its path.
    has_only_paths: bool,
    /// For each rule, the conditions that are still to be compared once it is found.
    left: Vec<ConditionsLeft>,
}

/// The conditions of a rule that are compared after it was found, if the path has only one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionsLeft {
    /// None: it was found by its only condition, or has none.
    None,
    /// All except the path, by which it was found.
    ButPath,
    All,
}

/// Indices of rules in a file.
pub(super) type RulePlaces = SmallVec<[usize; 8]>;

/// Lists of rules that can apply. Most requests find one, which is not copied.
struct Lists<'a> {
    first: &'a [usize],
    /// The rules of all lists, if there are several.
    merged: RulePlaces,
}

impl<'a> Lists<'a> {
    fn new(first: &'a [usize]) -> Self {
        Self { first, merged: RulePlaces::new() }
    }

    fn add(&mut self, more: &'a [usize]) {
        if self.first.is_empty() {
            self.first = more;
        } else if !more.is_empty() {
            if self.merged.is_empty() {
                self.merged.extend_from_slice(self.first);
            }
            self.merged.extend_from_slice(more);
        }
    }

    /// All rules, in order and each once.
    fn all(&mut self) -> &[usize] {
        if self.merged.is_empty() {
            return self.first;
        }
        self.merged.sort_unstable();
        self.merged.dedup();
        &self.merged
    }
}

impl Finder {
    /// Finds the rules that have these conditions, in their order.
    pub(super) fn of<'a>(rules: impl Iterator<Item = &'a Matcher> + Clone, comparison: Comparison) -> Self {
        let rarest = Rarest::among(rules.clone());
        let mut finder = Self {
            has_only_paths: true,
            paths: PathTree::new(comparison.fold(Sense::In)),
            comparison,
            ..Self::default()
        };
        for (place, matcher) in rules.enumerate() {
            if let Some(pattern) = &matcher.descriptor {
                finder.left.push(ConditionsLeft::All);
                match pattern.entries.as_ref().and_then(|entries| entries.exact()) {
                    Some((key, values)) => {
                        let known = finder.entries.entry(key.to_owned()).or_default();
                        values.into_iter().for_each(|value| add(known, value.to_owned(), place));
                    }
                    None => finder.descriptors.push(place),
                }
                continue;
            }
            let by = rarest.of(matcher);
            finder.left.push(match by {
                _ if matcher.size() == usize::from(by.is_some()) => ConditionsLeft::None,
                Some(FindBy::Path) => ConditionsLeft::ButPath,
                _ => ConditionsLeft::All,
            });
            finder.has_only_paths &= matches!(by, None | Some(FindBy::Path));
            match by {
                None => finder.others.push(place),
                Some(FindBy::Path) => {
                    let patterns = matcher.paths.iter().flatten().filter_map(PathWanted::indexed);
                    patterns.for_each(|path| finder.paths.add(path, place));
                }
                Some(FindBy::Host) => {
                    let hosts = matcher.hosts.iter().filter_map(TextPattern::exact);
                    hosts.for_each(|host| add(&mut finder.hosts, host.to_owned(), place));
                }
                Some(FindBy::Header((name, wanted))) => {
                    let known = finder.headers.iter().position(|(known, _)| known == name);
                    let at = known.unwrap_or_else(|| {
                        finder.headers.push((name.clone(), FastMap::default()));
                        finder.headers.len() - 1
                    });
                    let known = &mut finder.headers[at].1;
                    exact(wanted).for_each(|value| add(known, value, place));
                }
            }
        }
        finder
    }

    /// The rules with conditions that a request meets by its path alone, if there are no others that it could meet, in two ordered lists. The
    /// path has this only reading, and the request is not a descriptor.
    #[inline]
    pub(super) fn by_path_alone(&self, path: &str) -> Option<[&[usize]; 2]> {
        if !self.has_only_paths {
            return None;
        }
        let lists = [self.paths.only(path)?, &self.others];
        let is_met = |rule: &usize| self.left(*rule) == ConditionsLeft::None;
        lists.iter().all(|rules| rules.iter().all(is_met)).then_some(lists)
    }

    /// Passes on every rule that can apply in one of these readings of the path, in order, and possibly others.
    pub(super) fn candidates<T>(
        &self,
        asking: &RequestFacts<'_>,
        readings: &[MeantPath<'_>],
        look: impl FnOnce(&[usize]) -> T,
    ) -> T {
        let mut found = match asking.described {
            Some(described) => self.candidates_of(described),
            None => {
                let mut found = Lists::new(&self.others);
                for reading in readings {
                    self.paths.find(reading.path(Sense::In), |places| found.add(places));
                }
                if !self.has_only_paths {
                    self.find_beside_paths(asking, &mut found);
                }
                found
            }
        };
        look(found.all())
    }

    fn find_beside_paths<'a>(&'a self, asking: &RequestFacts<'_>, found: &mut Lists<'a>) {
        let mut take = |places: Option<&'a Vec<usize>>| places.iter().for_each(|places| found.add(places));
        if !self.hosts.is_empty() {
            take(asking.host().and_then(|host| self.hosts.get(host)));
        }
        for (name, values) in &self.headers {
            let found = asking
                .request
                .headers
                .get_all(name)
                .iter()
                .filter_map(|value| str::from_utf8(value.as_bytes()).ok());
            found.for_each(|value| take(values.get(value)));
        }
    }

    /// The conditions of a candidate that are still to be compared.
    #[inline]
    pub(super) fn left(&self, rule: usize) -> ConditionsLeft {
        self.left[rule]
    }

    /// Every rule that can apply to a descriptor, and possibly others.
    #[cold]
    fn candidates_of(&self, described: &RequestDescriptor) -> Lists<'_> {
        let mut found = Lists::new(&self.descriptors);
        for (key, value) in described.entries() {
            let Some(known) = self.entries.get(key) else { continue };
            let meanings = meanings(key, value, self.comparison.purpose, self.comparison.fold(Sense::In));
            meanings.iter().filter_map(|text| known.get(&**text)).for_each(|places| found.add(places));
        }
        found
    }
}

fn add<K: Hash + Eq>(places: &mut FastMap<K, Vec<usize>>, value: K, place: usize) {
    note(places.entry(value).or_default(), place);
}

/// The values that a rule can be found by: one of them has to be present.
#[derive(Clone, Copy)]
enum FindBy<'a> {
    Path,
    Host,
    Header(&'a (HeaderName, FieldPattern)),
}

/// Counts the rules that have a value among their conditions.
#[derive(Default)]
struct Rarest(HashMap<IndexedValue, usize>);

#[derive(PartialEq, Eq, Hash)]
enum IndexedValue {
    Path(String),
    Host(String),
    Header(HeaderName, String),
}

impl Rarest {
    fn among<'a>(rules: impl Iterator<Item = &'a Matcher>) -> Self {
        let mut counts = Self::default();
        for matcher in rules {
            for value in ways(matcher).into_iter().flat_map(|by| values(matcher, by)) {
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

/// The conditions by which a rule can be found; of two equally rare ones, the first is cheaper.
fn ways(matcher: &Matcher) -> Vec<FindBy<'_>> {
    let mut ways = Vec::new();
    let are_indexed = |paths: &Vec<PathWanted>| paths.iter().all(|path| path.indexed().is_some());
    ways.extend(matcher.paths.as_ref().is_some_and(are_indexed).then_some(FindBy::Path));
    let has_exact_hosts =
        !matcher.hosts.is_empty() && matcher.hosts.iter().all(|host| host.exact().is_some());
    ways.extend(has_exact_hosts.then_some(FindBy::Host));
    ways.extend(matcher.headers.iter().filter(|(_, wanted)| wanted.exact().is_some()).map(FindBy::Header));
    ways
}

/// The values of which one has to be there.
fn exact(wanted: &FieldPattern) -> impl Iterator<Item = String> {
    wanted.exact().into_iter().flatten().map(str::to_owned)
}

fn values(matcher: &Matcher, by: FindBy<'_>) -> Vec<IndexedValue> {
    match by {
        FindBy::Path => {
            matcher.paths.iter().flatten().map(|path| IndexedValue::Path(path.to_string())).collect()
        }
        FindBy::Host => matcher.hosts.iter().map(|host| IndexedValue::Host(host.to_string())).collect(),
        FindBy::Header((name, wanted)) => {
            exact(wanted).map(|value| IndexedValue::Header(name.clone(), value)).collect()
        }
    }
}
