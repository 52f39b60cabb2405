//! The difference between two files: [`Changes`].

use std::collections::BTreeMap;
use std::fmt;

use sluicegate_core::Policy;
use sluicegate_core::limiter::{Inherit, Overrides};

use crate::compile::{Compiled, FileRoom, NamedStore};

/// The policies that a change has kept, changed, added and removed. `Display` writes them on one line, for a log:
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let file = |quota: &str| {
///     let text = format!(
///         "{{ version: 1, policies: {{ login: {{ quota: {quota} }} }}, rules: [{{ name: all, limit: login, key: client }}] }}"
///     );
///     RulesFile::parse("rules.yaml", &text, &Variables::none())
/// };
/// let changes = file("10/min")?.changes_since(&file("5/min")?);
/// assert_eq!(changes.to_string(), "changed login 5/min -> 10/min, what was spent counts");
/// # Ok::<(), sluicegate_rules::RulesError>(())
/// ```
///
/// The line has the words `changed`, `added`, `removed`, `kept`, `overrides stand:` and `needs a restart:`, each with up to 20 names, in
/// this order; a word without names is left out. A policy that keeps its quotas and changes its mode, wait or room is `changed ... in its
/// options`. Where a file says `inherit`, the line says how the keys of a policy with changed quotas start:
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let file = |policies: &str| {
///     let text = format!(
///         "{{ version: 1, policies: {{ {policies} }}, rules: [{{ name: all, limit: [api, login], key: client }}] }}"
///     );
///     RulesFile::parse("rules.yaml", &text, &Variables::none())
/// };
/// let old = file("api: { quota: 100/min }, login: { quota: 5/min }")?;
/// let new = file("api: { quota: 200/min, inherit: reset }, login: { quota: 3/min }")?;
/// let line = "changed login 5/min -> 3/min, what was spent counts; changed api 100/min -> 200/min, by inherit: reset";
/// assert_eq!(new.changes_since(&old).to_string(), line);
/// # Ok::<(), sluicegate_rules::RulesError>(())
/// ```
///
/// It lists policies, and keys and tiers with quotas of their own. Rules, keys, conditions and the statuses of refusals change with the
/// file as well but are not listed: two files that differ only in these have only kept policies.
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let file = |rules: &str| {
///     let text = format!("
/// version: 1
/// policies: {{ api: {{ quota: 100/min }}, login: {{ quota: 5/min }}, export: {{ quota: 1/h }} }}
/// rules:
///   - {{ name: all, limit: api, key: client }}
/// {rules}");
///     RulesFile::parse("rules.yaml", &text, &Variables::none())
/// };
/// let old = file("  - { name: login, only_if: { path: /login }, limit: login, key: client }")?;
/// let new = file("  - { name: export, only_if: { path: /export }, limit: export, key: client }")?;
/// let changes = new.changes_since(&old);
/// assert_eq!(changes.to_string(), "added export; removed login; kept api");
/// assert_eq!((changes.added, changes.removed), (vec!["export".to_owned()], vec!["login".to_owned()]));
/// # Ok::<(), sluicegate_rules::RulesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Names of policies that did not change.
    pub kept: Vec<String>,
    /// Names of policies with their old and new quotas, as `("login", "5/min", "10/min")`; spent units count, unless the policy is
    /// in [`inherit`](Self::inherit). Both texts are equal if only options changed.
    pub changed: Vec<(String, String, String)>,
    /// Names of changed policies whose keys start in another way than with what they have spent.
    pub inherit: BTreeMap<String, Inherit>,
    /// Names of new policies.
    pub added: Vec<String>,
    /// Names of policies that no rule uses any more. Their keys are forgotten as they come to rest; a policy that code has opened under
    /// such a name is in force again.
    pub removed: Vec<String>,
    /// Overrides that operators have set on policies of the file. Such a policy follows the file again when its override ends.
    pub overrides: Vec<String>,
    /// Waiting rooms that changed, with their old and new rates, as `("sale", "50/s", "80/s")`; waiting visitors keep their places. Both
    /// texts are equal if only `room` changed. Rooms are also listed in `kept`, `added` and `removed`; visitors waiting in a removed
    /// room are admitted at their next request.
    pub rooms: Vec<(String, String, String)>,
    /// Changed sections that a service reads only when it starts: `store`.
    pub needs_restart: Vec<String>,
}

impl Changes {
    /// The changes between the policies of two files, of which `file` is the new one.
    pub(crate) fn between(old: &[Policy], new: &[Policy], file: &Compiled) -> Self {
        let mut changes = Self::default();
        for policy in new {
            let name = policy.name().to_owned();
            match old.iter().find(|old| old.name() == policy.name()) {
                None => changes.added.push(name),
                // Whether keys may bring quotas of their own changes nothing for the others.
                Some(old) if old.taking_quotas() == policy.taking_quotas() => changes.kept.push(name),
                Some(old) => {
                    let inherit = file.inherit(old, policy);
                    if inherit != Inherit::Spent {
                        changes.inherit.insert(name.clone(), inherit);
                    }
                    let (old, new) = words(old, policy);
                    changes.changed.push((name, old, new));
                }
            }
        }
        let is_gone = |old: &&Policy| !new.iter().any(|new| new.name() == old.name());
        changes.removed = old.iter().filter(is_gone).map(|old| old.name().to_owned()).collect();
        changes
    }

    /// Adds the changes of single keys with quotas of their own.
    pub(crate) fn of_keys(mut self, old: &[(String, String)], new: &[(String, String)]) -> Self {
        let old: BTreeMap<&str, &str> = old.iter().map(|(key, quotas)| (&**key, &**quotas)).collect();
        let mut gone = old.clone();
        for (key, quotas) in new {
            gone.remove(&**key);
            match old.get(&**key) {
                None => self.added.push(key.clone()),
                Some(old) if old == quotas => self.kept.push(key.clone()),
                Some(old) => self.changed.push((key.clone(), (*old).to_owned(), quotas.clone())),
            }
        }
        self.removed.extend(gone.into_keys().map(str::to_owned));
        self
    }

    /// Adds the changes of waiting rooms.
    pub(crate) fn of_rooms(mut self, old: &[FileRoom], new: &[FileRoom]) -> Self {
        let of = |rooms: &[FileRoom], name: &str| rooms.iter().position(|room| room.terms.name == name);
        for room in new {
            let (name, rate) = (room.terms.name.clone(), room.terms.rate);
            match of(old, &name).map(|place| &old[place]) {
                None => self.added.push(name),
                Some(old) if old.terms.rate == rate && old.options == room.options => self.kept.push(name),
                Some(old) => self.rooms.push((name, old.terms.rate.to_string(), rate.to_string())),
            }
        }
        let names = old.iter().map(|room| &room.terms.name);
        self.removed.extend(names.filter(|name| of(new, name).is_none()).cloned());
        self
    }

    /// Adds `store` to the sections that need a restart, if the two files name different stores.
    pub(crate) fn of_stores(mut self, old: Option<&NamedStore>, new: Option<&NamedStore>) -> Self {
        self.needs_restart.extend((old != new).then(|| "store".to_owned()));
        self
    }

    /// Adds the overrides that are set on policies of the file.
    pub(crate) fn under(mut self, overrides: &Overrides) -> Self {
        let is_of_the_file = |name: &str| {
            let names = self.kept.iter().chain(&self.added);
            names.chain(self.changed.iter().map(|(name, ..)| name)).any(|known| known == name)
        };
        let standing = overrides.list();
        let standing = standing.iter().filter(|over| is_of_the_file(over.policy()));
        self.overrides = standing.map(ToString::to_string).collect();
        self
    }
}

/// The texts of two policies of one name, without the name, and without the algorithm if both have the same.
fn words(old: &Policy, new: &Policy) -> (String, String) {
    let words = |policy: &Policy| {
        let (name, algorithm) = (format!("{}: ", policy.name()), format!(" ({})", policy.algorithm()));
        let words = policy.to_string();
        let words = words.strip_prefix(&name).unwrap_or(&words);
        let is_same = old.algorithm() == new.algorithm();
        words.strip_suffix(&algorithm).filter(|_| is_same).unwrap_or(words).to_owned()
    };
    (words(old), words(new))
}

/// The most names of one kind that the line shows.
const MOST: usize = 20;

/// The names of one kind, after the word for it.
fn part(kind: &str, names: &[impl fmt::Display]) -> Option<String> {
    let shown: Vec<String> = names.iter().take(MOST).map(ToString::to_string).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{kind} {}{more}", shown.join(", ")))
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |(name, old, new): &(String, String, String)| match old == new {
            true => format!("{name} in its options"),
            false => format!("{name} {old} -> {new}"),
        };
        let inherit = |name: &str| self.inherit.get(name).copied().unwrap_or_default();
        let mut ways: Vec<Inherit> = self.changed.iter().map(|(name, ..)| inherit(name)).collect();
        ways.sort_by_key(|way| (*way != Inherit::Spent, way.to_string()));
        ways.dedup();
        let changed = ways.into_iter().map(|way| {
            let names = self.changed.iter().filter(|(name, ..)| inherit(name) == way);
            let end = match way {
                Inherit::Spent => "what was spent counts".to_owned(),
                way => format!("by inherit: {way}"),
            };
            Some(part("changed", &names.map(words).collect::<Vec<_>>())? + ", " + &end)
        });
        let rooms = part("changed", &self.rooms.iter().map(words).collect::<Vec<_>>());
        let others = [
            rooms.map(|rooms| rooms + ", all who wait keep their places"),
            part("added", &self.added),
            part("removed", &self.removed),
            part("kept", &self.kept),
            part("overrides stand:", &self.overrides),
            part("needs a restart:", &self.needs_restart),
        ];
        f.write_str(&changed.chain(others).flatten().collect::<Vec<_>>().join("; "))
    }
}
