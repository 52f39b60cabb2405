//! The difference between two files: [`Changes`].

use std::fmt;

use sluicegate_core::Policy;

/// The policies that a change has kept, changed, added and removed. It is shown on one line, for a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Names of policies that are as before.
    pub kept: Vec<String>,
    /// Names of policies with what they were and what they are; what was spent counts.
    pub changed: Vec<(String, String, String)>,
    /// Names of policies that are new.
    pub added: Vec<String>,
    /// Names of policies that no rule uses any more; their keys are forgotten as they come to rest.
    pub removed: Vec<String>,
}

impl Changes {
    pub(crate) fn between(old: &[Policy], new: &[Policy]) -> Self {
        let mut changes = Self::default();
        for policy in new {
            let name = policy.name().to_owned();
            match old.iter().find(|old| old.name() == policy.name()) {
                None => changes.added.push(name),
                Some(old) if old == policy => changes.kept.push(name),
                Some(old) => changes.changed.push((name, words(old), words(policy))),
            }
        }
        let is_gone = |old: &&Policy| !new.iter().any(|new| new.name() == old.name());
        changes.removed = old.iter().filter(is_gone).map(|old| old.name().to_owned()).collect();
        changes
    }
}

/// A policy without its name.
fn words(policy: &Policy) -> String {
    let words = policy.to_string();
    words.strip_prefix(&format!("{}: ", policy.name())).map_or_else(|| words.clone(), str::to_owned)
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changed.iter().map(|(name, old, new)| match old == new {
            true => format!("{name}: other options"),
            false => format!("{name}: {old} -> {new}, what was spent counts"),
        });
        let added = self.added.iter().map(|name| format!("{name} is new"));
        let removed = self.removed.iter().map(|name| format!("{name} is gone"));
        let all: Vec<String> = changed.chain(added).chain(removed).collect();
        if all.is_empty() { f.write_str("all policies are as before") } else { f.write_str(&all.join("; ")) }
    }
}
