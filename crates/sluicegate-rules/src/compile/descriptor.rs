//! The descriptors of Envoy's protocol that a rule is about, and the keys that are found in them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{Extraction, KeyForm, RequestView};
use sluicegate_tower::limits::path::{Fold, Purpose, Sense};

use super::paths::Comparison;
use super::pattern::FieldPattern;
use crate::at::At;
use crate::descriptor::{RequestDescriptor, is_path, meaning, meanings};
use crate::error::Problems;
use crate::schema::{Condition, DescriptorEntries};
use crate::shown::short;

/// The domains and the entries that a descriptor must have.
#[derive(Default)]
pub(super) struct DescriptorPattern {
    /// Domains; one of them must match; an empty list accepts any.
    domains: Vec<String>,
    /// `None` accepts any entries.
    pub entries: Option<EntriesPattern>,
}

/// The entries that a descriptor must have.
pub(super) struct EntriesPattern {
    all: Vec<(String, FieldPattern)>,
    /// Whether their order counts.
    is_in_order: bool,
    comparison: Comparison,
    sense: Sense,
    /// Whether other entries may be there too.
    has_more: bool,
}

/// The condition of a pattern that fails.
pub(super) enum NotDescribed<'a> {
    Domain(&'a str, &'a [String]),
    Entries(Vec<&'a str>, &'a EntriesPattern),
}

/// The entry that stands for all that are not named.
const OTHERS: &str = "*";

/// Finds keys in descriptors.
#[derive(Clone)]
pub(super) enum DescriptorKey {
    /// The domain with all entries, or with those of these keys.
    Whole(Option<Arc<[String]>>),
    /// The value of the entry with this key.
    Entry(String),
}

impl DescriptorPattern {
    /// Returns `None` if the condition is not about descriptors.
    pub(super) fn of(
        condition: &Condition,
        comparison: Comparison,
        sense: Sense,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let domains = condition.domain.as_ref().map(At::all).unwrap_or_default();
        let domains = domains.into_iter().map(|domain| domain.value).collect();
        let entries =
            condition.descriptor.as_ref().map(|given| EntriesPattern::of(given, comparison, sense, problems));
        condition.is_about_descriptors().then_some(Self { domains, entries })
    }

    /// The first condition that fails.
    pub(super) fn mismatch<'a>(&'a self, found: &'a RequestDescriptor) -> Option<NotDescribed<'a>> {
        let domain = found.domain();
        if !self.domains.is_empty() && !self.domains.iter().any(|known| known == domain) {
            return Some(NotDescribed::Domain(domain, &self.domains));
        }
        let entries = self.entries.as_ref().filter(|entries| !entries.matches(found.entries()))?;
        Some(NotDescribed::Entries(found.entries().iter().map(|(key, _)| &**key).collect(), entries))
    }

    /// Whether no descriptor can match both.
    pub(super) fn is_apart_from(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (&self.entries, &other.entries) else { return false };
        if one.has_more || two.has_more {
            return false;
        }
        let keys = |pattern: &EntriesPattern| {
            let mut keys: Vec<String> = pattern.all.iter().map(|(key, _)| key.clone()).collect();
            keys.sort_unstable();
            keys
        };
        keys(one) != keys(two)
    }
}

impl EntriesPattern {
    fn of(
        given: &At<DescriptorEntries>,
        comparison: Comparison,
        sense: Sense,
        problems: &mut Problems<'_>,
    ) -> Self {
        let DescriptorEntries { entries, is_in_order } = &given.value;
        let mut all: Vec<(String, FieldPattern)> = Vec::new();
        let mut has_more = !is_in_order;
        for (key, wanted) in entries {
            if key.value == OTHERS {
                match FieldPattern::of(wanted, Fold::default(), problems) {
                    FieldPattern::Absent => has_more = false,
                    any if any == FieldPattern::any() => has_more = true,
                    _ => problems.error(
                        wanted.place,
                        "\"*\" stands for further entries: write \"*\": \"*\", or \"*\": { present: false }",
                    ),
                }
                continue;
            }
            if !is_in_order && all.iter().any(|(known, _)| *known == key.value) {
                let text = format!(
                    "the entry {:?} is there twice: write a list of entries, in the order of the proxy",
                    short(&key.value)
                );
                problems.error(key.place, text);
            }
            let fold = if is_path(&key.value) { comparison.fold(sense) } else { Fold::default() };
            let wanted = FieldPattern::of(wanted, fold, problems);
            if *is_in_order && wanted == FieldPattern::Absent {
                problems.error(
                    key.place,
                    "a list names the entries that are there: write a map, as { a: { present: false } }",
                );
            }
            all.push((key.value.clone(), wanted));
        }
        if all.is_empty() {
            problems.error(given.place, "no entry is named here: write them as { remote_address: \"*\" }");
        }
        Self { all, is_in_order: *is_in_order, comparison, sense, has_more }
    }

    fn matches(&self, found: &[(String, String)]) -> bool {
        let has = |wanted: &FieldPattern, (key, value): &(String, String)| {
            let is_wanted = |text: Cow<'_, str>| wanted.is_met_by([text]);
            let mut texts =
                meanings(key, value, self.comparison.purpose, self.comparison.fold(self.sense)).into_iter();
            // An exemption must hold for sure, and so must everything within a `not` of other sections.
            let takes_any = (self.comparison.purpose == Purpose::Exempt) == (self.sense == Sense::NotIn);
            if takes_any { texts.any(is_wanted) } else { texts.all(is_wanted) }
        };
        let mut all = self.all.iter();
        let others = found.iter().filter(|(key, _)| !self.all.iter().any(|(known, _)| known == key));
        match self.is_in_order {
            true => {
                (found.len() == self.all.len() || self.has_more && found.len() > self.all.len())
                    && all.zip(found).all(|((key, wanted), entry)| *key == entry.0 && has(wanted, entry))
            }
            false => {
                (self.has_more || others.count() == 0)
                    && all.all(|(key, wanted)| {
                        let mut entries = found.iter().filter(|entry| entry.0 == *key);
                        match wanted {
                            FieldPattern::Absent => entries.next().is_none(),
                            FieldPattern::OneOf(_) => entries.any(|entry| has(wanted, entry)),
                        }
                    })
            }
        }
    }

    /// A key with values, one of which every matching descriptor has. `None` if no entry has values without `*`.
    pub(super) fn exact(&self) -> Option<(&str, Vec<&str>)> {
        self.all.iter().find_map(|(key, wanted)| Some((&**key, wanted.exact()?)))
    }

    /// The keys of the entries that a bucket of this rule is for: those that are named, if others may be there.
    pub(super) fn keys(&self) -> Option<Arc<[String]>> {
        self.has_more.then(|| self.all.iter().map(|(key, _)| key.clone()).collect())
    }
}

impl KeyExtractor for DescriptorKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let Some(described) = RequestDescriptor::of(request) else {
            return Extraction::missing("the request is not a descriptor");
        };
        match self {
            Self::Whole(keys) => {
                let domain = Key::from(described.domain());
                Extraction::found(
                    entries_of(described, keys)
                        .fold(domain, |key, (name, value)| key.and(name).and(&*meaning(name, value))),
                )
            }
            Self::Entry(name) => match described.value(name) {
                Some(value) if !value.is_empty() => Extraction::found(&*meaning(name, value)),
                _ => Extraction::missing(format!("the descriptor has no entry {name}")),
            },
        }
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Name
    }

    fn forms(&self) -> Vec<KeyForm> {
        match self {
            Self::Whole(_) => vec![KeyForm::several()],
            Self::Entry(_) => vec![KeyForm::text()],
        }
    }
}

impl DescriptorKey {
    /// The operators' name for the key of a descriptor.
    pub(super) fn name(&self, request: RequestView<'_>) -> Option<String> {
        let described = RequestDescriptor::of(request)?;
        match self {
            Self::Whole(keys) => {
                let entries =
                    entries_of(described, keys).map(|(key, value)| format!("{key}={}", meaning(key, value)));
                Some(entries.collect::<Vec<_>>().join(","))
            }
            Self::Entry(name) => described.value(name).map(|value| meaning(name, value).into_owned()),
        }
    }
}

/// The entries of a descriptor with these keys.
fn entries_of<'a>(
    described: &'a RequestDescriptor,
    keys: &Option<Arc<[String]>>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let entries = described.entries().iter().map(|(key, value)| (&**key, &**value));
    entries.filter(move |(key, _)| keys.as_ref().is_none_or(|keys| keys.iter().any(|known| known == key)))
}

impl fmt::Display for NotDescribed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(domain, wanted) => {
                write!(f, "domain is {}, the rule wants {}", short(domain), wanted.join(" or "))
            }
            // Values are not shown: they may be secrets.
            Self::Entries(keys, wanted) => {
                let keys: Vec<String> = keys.iter().map(|key| short(key).to_string()).collect();
                write!(f, "descriptor with {} does not match {wanted}", keys.join(", "))
            }
        }
    }
}

/// Writes the entries as in a file.
impl fmt::Display for EntriesPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = match (self.is_in_order, self.has_more) {
            (true, true) => Some("*: *"),
            (false, false) => Some("*: absent"),
            _ => None,
        };
        let entries = self.all.iter().map(|(key, wanted)| format!("{key}: {wanted}"));
        let entries: Vec<String> = entries.chain(others.map(str::to_owned)).collect();
        let entries = entries.join(", ");
        if self.is_in_order { write!(f, "[{entries}]") } else { write!(f, "{{ {entries} }}") }
    }
}
