//! The policies that are open on a store, for authors of stores.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use super::prepared::PreparedPolicy;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::Policy;
use crate::support::lock;

/// The policies that are open on a store, by name, each with what the store prepared for it.
///
/// Equal policies share a preparation. A different policy under a name in use is refused, because it would take over
/// another policy's buckets. A name is free again when the last limiter that used it is gone.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::Policy;
/// use sluicegate_core::store::Registry;
///
/// let registry = Registry::<u32>::default();
/// let policy = |quota| Ok::<_, sluicegate_core::ConfigError>(Arc::new(Policy::gcra("login", quota).build()?));
/// let first = registry.open(policy("5/min")?, None, |_| Ok(7))?;
/// assert_eq!(first.prepared::<u32>(), Some(&7));
/// // An equal policy shares the first preparation.
/// let same = registry.open(policy("5/min")?, None, |_| Ok(8))?;
/// assert_eq!(same.prepared::<u32>(), Some(&7));
/// // A different policy of that name is refused, until the last user of the first is gone.
/// assert!(registry.open(policy("6/min")?, None, |_| Ok(9)).is_err());
/// drop((first, same));
/// assert!(registry.open(policy("6/min")?, None, |_| Ok(9)).is_ok());
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
pub struct Registry<T> {
    /// The policies of each name that are still in use, the youngest last.
    open: Mutex<HashMap<String, Vec<PutPolicy<T>>>>,
}

type PutPolicy<T> = (Arc<Policy>, Weak<T>);

impl<T: Send + Sync + 'static> Registry<T> {
    /// Opens a policy, with the preparation of an equal one or a new one from `prepare`. A replacement that is dropped
    /// unused does not change the policy that it was meant to replace.
    ///
    /// # Errors
    /// The error of `prepare`; and when the name is in use for a different policy, unless it is the one `replaced`.
    pub fn open(
        &self,
        policy: Arc<Policy>,
        replaced: Option<&PreparedPolicy>,
        prepare: impl FnOnce(&Arc<Policy>) -> Result<T, ConfigError>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let mut open = lock(&self.open);
        make_room(&mut open, |policies| policies.iter().any(is_in_use));
        let policies = open.entry(policy.name().to_owned()).or_default();
        policies.retain(is_in_use);
        let current =
            policies.iter().rev().find_map(|(policy, prepared)| Some((policy, prepared.upgrade()?)));
        match (current, replaced) {
            // Another limiter of the same policy may have been replaced by this one already.
            (Some((current, prepared)), replaced)
                if policy.is_like(current) && replaced.is_none_or(|old| !old.has(&prepared)) =>
            {
                return Ok(PreparedPolicy::new(Arc::clone(current), prepared));
            }
            (Some((current, _)), None) => return Err(name_taken(&policy, current)),
            (_, Some(replaced)) if replaced.policy().name() != policy.name() => {
                return Err(ConfigError::new(
                    ConfigErrorKind::OtherName,
                    format!("it cannot replace {:?}: their names must be equal", replaced.policy().name()),
                )
                .in_policy(policy.name()));
            }
            _ => {}
        }
        let prepared = Arc::new(prepare(&policy)?);
        policies.push((Arc::clone(&policy), Arc::downgrade(&prepared)));
        Ok(PreparedPolicy::new(policy, prepared))
    }

    /// The preparations of all policies that are still in use, including replaced ones: those of one name in a row.
    pub fn prepared(&self) -> Vec<Arc<T>> {
        let open = lock(&self.open);
        open.values().flatten().filter_map(|(_, prepared)| prepared.upgrade()).collect()
    }
}

fn is_in_use<T>((_, prepared): &PutPolicy<T>) -> bool {
    prepared.strong_count() > 0
}

/// Makes room for one more entry. When a map is full, unused entries are removed, and then at least half of it is free, so that
/// an entry costs constant time on average. A map keeps unused entries until it is full again, so it has at most about
/// twice as many entries as were in use at once; then it shrinks to those in use.
pub(crate) fn make_room<V>(map: &mut HashMap<String, V>, is_in_use: impl Fn(&V) -> bool) {
    if map.len() == map.capacity() {
        map.retain(|_, value| is_in_use(value));
        map.shrink_to(2 * map.len() + 1);
        map.reserve(map.len() + 1);
    }
}

pub(crate) fn name_taken(policy: &Policy, current: &Policy) -> ConfigError {
    ConfigError::new(
        ConfigErrorKind::NameTaken,
        format!(
            "the name is taken on this store by another policy ({current}): give this one ({policy}) another name, or replace that one"
        ),
    )
    .in_policy(policy.name())
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<T> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = lock(&self.open);
        let in_use = open.values().flatten().filter(|open| is_in_use(open));
        f.debug_set().entries(in_use.map(|(policy, _)| policy.to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_grows_with_what_is_in_use_and_not_with_what_is_gone() {
        let (mut map, mut sweeps) = (HashMap::new(), 0);
        for number in 0..10_000 {
            sweeps += usize::from(map.len() == map.capacity());
            make_room(&mut map, |in_use| *in_use);
            map.insert(number.to_string(), number < 100);
        }
        assert!(map.len() < 500 && map.contains_key("99"), "{}", map.len());
        assert!(sweeps < 150, "{sweeps} times was all of it looked through");
    }

    #[test]
    fn a_map_shrinks_when_most_of_it_is_gone() {
        let mut map: HashMap<_, _> = (0..10_000).map(|number| (number.to_string(), false)).collect();
        for number in 10_000..20_000 {
            make_room(&mut map, |in_use| *in_use);
            map.insert(number.to_string(), number < 10_010);
        }
        assert!(map.capacity() < 500, "{}", map.capacity());
    }
}
