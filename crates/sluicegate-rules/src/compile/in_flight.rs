//! Limits on requests that are under way at once: the section `in_flight`.
//!
//! It bounds requests under way, not their rate. A name stands for one number of permits, per key or as many as the service can bear, whichever
//! rules name it; permits that are out when a reload changes the number still count.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sluicegate_core::in_flight::{AdaptiveBuilder, Class, InFlight};
use sluicegate_core::policy::{PolicyMode, TimeSpan};
use sluicegate_core::{ConfigError, OnExceeded};

use super::{number, option, read};
use crate::at::At;
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{File, InFlightEntry};

/// The limits by name, and the names that a rule uses.
pub(super) struct Numbers {
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
    /// As many of each key.
    Each(u64),
    /// As many as the service can bear.
    Adaptive(AdaptiveBuilder),
}

impl AtOnce {
    /// The number of this name, begun.
    pub(super) fn begun(&self, name: &str) -> Result<InFlight, ConfigError> {
        match self {
            Self::Each(permits) => InFlight::new(name, *permits),
            Self::Adaptive(builder) => builder.clone().build(),
        }
    }

    /// Changes one that is there; it says whether it could: one of another kind has to begin anew.
    pub(super) fn change(&self, in_flight: &InFlight) -> bool {
        match self {
            Self::Each(permits) => in_flight.set_permits(*permits).is_ok(),
            Self::Adaptive(builder) => in_flight.set_adaptive(builder).is_ok(),
        }
    }
}

impl Numbers {
    pub(super) fn of(file: &File, problems: &mut Problems<'_>) -> Self {
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
            all.insert(name.value.clone(), (name.clone(), self::number_of(name, &entry.value, problems)));
        }
        Self { all, used: RefCell::default() }
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

fn number_of(name: &At<String>, entry: &InFlightEntry, problems: &mut Problems<'_>) -> Option<Number> {
    let on_exceeded = option::<OnExceeded>(entry.on_exceeded.as_ref(), problems);
    let longest = on_exceeded.and_then(OnExceeded::longest_wait);
    let at_once = match (&entry.permits, &entry.adaptive) {
        (Some(permits), None) => {
            only_adaptive(entry, problems);
            let permits = number(permits, "a number of permits", 1..=MOST, problems)?;
            InFlight::new(&name.value, permits).map(|_| AtOnce::Each(permits))
        }
        (None, Some(algorithm)) => {
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
    // What is wrong is told, and all that is wrong at once.
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

/// Says which words mean nothing where the number is a fixed one.
fn only_adaptive(entry: &InFlightEntry, problems: &mut Problems<'_>) {
    let InFlightEntry {
        permits: _,
        adaptive: _,
        on_exceeded: _,
        at_least,
        at_most,
        first,
        timeout,
        fair,
        guarantee,
        mode,
    } = entry;
    let words = [
        ("at_least", at_least),
        ("at_most", at_most),
        ("first", first),
        ("timeout", timeout),
        ("mode", mode),
    ];
    let said = words.into_iter().filter_map(|(word, value)| Some((word, value.as_ref()?.place)));
    let fair = fair.as_ref().map(|fair| ("fair", fair.place));
    let guarantee = guarantee.0.first().map(|(class, _)| ("guarantee", class.place));
    for (word, place) in said.chain(fair).chain(guarantee) {
        problems.error(
            place,
            format!("{word:?} is for numbers that adapt: write \"adaptive\" instead of \"permits\""),
        );
    }
}
