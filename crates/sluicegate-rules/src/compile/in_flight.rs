//! Limits on concurrent requests: the section `in_flight`.
//!
//! It bounds concurrent requests, not their rate. A name has one number of permits, per key or as many as the service can handle, whichever
//! rules name it; permits in use when a reload changes the number still count.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::policy::{PolicyMode, TimeSpan};
use sluicegate_core::{ConfigError, MemoryStore, OnExceeded, OnOutage, Store};
use sluicegate_in_flight::{AdaptiveBuilder, Class, InFlight, Sharing};

use super::store::NamedStore;
use super::value::{number, option, read, refuse};
use crate::at::At;
use crate::error::Problems;
use crate::schema::{AtOnceEntry, File, InFlightEntry, written};
use crate::shown::{instead_of, short};

/// The limits by name, and the names that a rule uses.
pub(super) struct InFlightNumbers {
    all: HashMap<String, (At<String>, Option<Number>)>,
    used: RefCell<HashSet<String>>,
}

/// A limit on requests at once.
#[derive(Clone)]
pub(super) struct Number {
    pub name: String,
    pub at_once: AtOnce,
    /// The longest wait for a permit, if requests wait.
    pub longest: Option<Duration>,
}

/// The number at once.
#[derive(Clone)]
pub(super) enum AtOnce {
    /// A number for each key; of all instances together, if they share it.
    Each(u64, Option<Sharing>),
    /// The number that the service can handle.
    Adaptive(AdaptiveBuilder),
}

impl AtOnce {
    /// Starts the number of this name.
    pub(super) fn begun(&self, name: &str, store: &Arc<dyn Store>) -> Result<InFlight, ConfigError> {
        match self {
            Self::Each(permits, None) => InFlight::new(name, *permits),
            Self::Each(permits, Some(sharing)) => {
                let Sharing { lease, on_outage, replicas, .. } = *sharing;
                let builder = InFlight::builder(name, *permits).lease(lease).on_outage(on_outage);
                builder.replicas(replicas).on(Arc::clone(store))
            }
            Self::Adaptive(builder) => builder.clone().build(),
        }
    }

    /// How instances share it, if they do.
    pub(super) fn sharing(&self) -> Option<Sharing> {
        match self {
            Self::Each(_, sharing) => *sharing,
            Self::Adaptive(_) => None,
        }
    }

    /// Changes an existing number; returns whether it could: a number of another kind has to be made anew.
    pub(super) fn change(&self, in_flight: &InFlight) -> bool {
        match self {
            Self::Each(permits, sharing) => {
                in_flight.sharing() == *sharing && in_flight.set_permits(*permits).is_ok()
            }
            Self::Adaptive(builder) => in_flight.set_adaptive(builder).is_ok(),
        }
    }
}

impl InFlightNumbers {
    pub(super) fn of(file: &File, store: Option<&NamedStore>, problems: &mut Problems<'_>) -> Self {
        let is_policy = |name: &str| file.policies.0.iter().any(|(policy, _)| policy.value == name);
        let mut all = HashMap::new();
        for (name, entry) in &file.in_flight.0 {
            if is_policy(&name.value) {
                let text = format!(
                    "{:?} is a policy already, and clients are shown both by their names",
                    name.value
                );
                problems.error(name.place, text);
            }
            let number = match &entry.value {
                AtOnceEntry::Entry(given) => self::number_of(name, given, store, problems),
                AtOnceEntry::Text(text) => {
                    let permits = Some(At { value: text.clone(), place: entry.place });
                    let given = InFlightEntry { permits, ..InFlightEntry::default() };
                    self::number_of(name, &given, store, problems)
                }
            };
            all.insert(name.value.clone(), (name.clone(), number));
        }
        Self { all, used: RefCell::default() }
    }

    /// Whether there is a limit of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// The limit of this name, which is used from now on.
    pub(super) fn used(&self, name: &At<String>, problems: &mut Problems<'_>) -> Option<Number> {
        self.used.borrow_mut().insert(name.value.clone());
        let Some((_, number)) = self.all.get(&name.value) else {
            let mut names: Vec<_> = self.all.keys().map(|name| &**name).collect();
            names.sort_unstable();
            let instead = instead_of(&name.value, &names);
            let text = format!("there is no {:?} under \"in_flight\"{instead}", short(&name.value));
            problems.error(name.place, text);
            return None;
        };
        number.clone()
    }

    pub(super) fn warn_of_unused(&self, problems: &mut Problems<'_>) {
        let names = self.all.values().map(|(name, _)| name);
        for name in names.filter(|name| !self.used.borrow().contains(&name.value)) {
            problems.warning(name.place, format!("{:?} limits nothing: no rule names it", name.value));
        }
    }
}

fn number_of(
    name: &At<String>,
    entry: &InFlightEntry,
    store: Option<&NamedStore>,
    problems: &mut Problems<'_>,
) -> Option<Number> {
    let on_exceeded = option::<OnExceeded>(entry.on_exceeded.as_ref(), problems);
    let longest = on_exceeded.and_then(OnExceeded::longest_wait);
    let at_once = match (&entry.permits, &entry.adaptive) {
        (Some(permits), None) => {
            let adapting = written!(entry; at_least at_most first timeout mode fair guarantee);
            refuse(adapting, problems, |word| {
                format!("{word:?} is for numbers that adapt: write \"adaptive\" instead of \"permits\"")
            });
            let permits = number(permits, "a number of permits", 1..=MOST, problems);
            let sharing = sharing(entry, store, problems)?;
            let at_once = AtOnce::Each(permits?, sharing);
            // Memory accepts what any store does.
            at_once.begun(&name.value, &MemoryStore::new().into()).map(|_| at_once)
        }
        (None, Some(algorithm)) => {
            only_shared(
                entry,
                "each instance adapts by itself: use \"permits\" for a number that instances share",
                problems,
            );
            let wait = on_exceeded.map(|_| longest.unwrap_or_default());
            let builder = adaptive(name, algorithm, entry, wait, problems)?;
            builder.clone().build().map(|_| AtOnce::Adaptive(builder))
        }
        (permits, _) => {
            let text = match permits {
                Some(_) => format!("{:?} has \"permits\" and is \"adaptive\": use one of them", name.value),
                None => {
                    format!("{:?} has no number: give it \"permits\", or make it \"adaptive\"", name.value)
                }
            };
            problems.error(name.place, text);
            return None;
        }
    };
    let at_once = at_once.map_err(|error| problems.error(name.place, error.problem())).ok()?;
    Some(Number { name: name.value.clone(), at_once, longest })
}

const MOST: u64 = 1_000_000;

/// How instances share the permits, if they do; `None` if something is wrong.
fn sharing(
    entry: &InFlightEntry,
    store: Option<&NamedStore>,
    problems: &mut Problems<'_>,
) -> Option<Option<Sharing>> {
    if !entry.shared.as_ref().is_some_and(|shared| shared.value) {
        only_shared(entry, "it is for permits that instances share: write \"shared: true\"", problems);
        return Some(None);
    }
    let mut sharing = Sharing::default();
    let lease = entry.lease.as_ref().map(|text| read::<TimeSpan>(text, problems));
    let on_outage = entry.on_outage.as_ref().map(|text| read::<OnOutage>(text, problems));
    if let Some(lease) = lease {
        sharing.lease = lease?.into();
    }
    if let Some(on_outage) = on_outage {
        sharing.on_outage = on_outage?;
    }
    sharing.replicas = store.map_or(1, NamedStore::replicas);
    Some(Some(sharing))
}

/// Reports words that have no meaning unless instances share the permits.
fn only_shared(entry: &InFlightEntry, why: &str, problems: &mut Problems<'_>) {
    let shared = entry.shared.as_ref().filter(|shared| shared.value).map(|shared| shared.place);
    let [lease, on_outage] = written!(entry; lease on_outage);
    refuse([lease, on_outage, ("shared", shared)], problems, |word| format!("{word:?}: {why}"));
}

fn adaptive(
    name: &At<String>,
    algorithm: &At<String>,
    entry: &InFlightEntry,
    wait: Option<Duration>,
    problems: &mut Problems<'_>,
) -> Option<AdaptiveBuilder> {
    let mut builder =
        InFlight::adaptive(&name.value).algorithm(read(algorithm, problems).unwrap_or_default());
    let mut at_once = |text: &Option<At<String>>| {
        text.as_ref().map(|text| number(text, "a number at once", 1..=MOST, problems))
    };
    let numbers = [&entry.at_least, &entry.at_most, &entry.first].map(&mut at_once);
    // All mistakes are reported at once.
    let [at_least, at_most, first] = numbers;
    for (number, set) in [
        (at_least, AdaptiveBuilder::at_least as fn(AdaptiveBuilder, u64) -> AdaptiveBuilder),
        (at_most, AdaptiveBuilder::at_most),
        (first, AdaptiveBuilder::first),
    ] {
        if let Some(number) = number {
            builder = set(builder, number?);
        }
    }
    if let Some(timeout) = entry.timeout.as_ref() {
        builder = builder.timeout(read::<TimeSpan>(timeout, problems)?.into());
    }
    if let Some(wait) = wait {
        builder = builder.wait_up_to(wait);
    }
    for (class, percent) in &entry.guarantee.0 {
        let (class, percent) =
            (read::<Class>(class, problems), number(percent, "a part in percent", 0..=100, problems));
        builder = builder.guarantee(class?, percent?);
    }
    if entry.fair.as_ref().is_some_and(|fair| fair.value) {
        builder = builder.fair();
    }
    Some(match option::<PolicyMode>(entry.mode.as_ref(), problems) {
        Some(mode) => builder.mode(mode),
        None => builder,
    })
}
