//! Limits on the requests of a key that are under way at once: the section `in_flight`.
//!
//! It bounds requests under way, not their rate. A name stands for one number of permits per key, whichever rules name it; permits that are
//! out when a reload changes the number still count.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sluicegate_core::OnExceeded;
use sluicegate_core::in_flight::InFlight;

use super::{number, option};
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
    pub permits: u64,
    /// The longest wait for a permit, if requests wait.
    pub longest: Option<Duration>,
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
    let permits = number(&entry.permits, "a number of permits", 1..=1_000_000, problems);
    let on_exceeded = option::<OnExceeded>(entry.on_exceeded.as_ref(), problems);
    let number = Number {
        name: name.value.clone(),
        permits: permits?,
        longest: on_exceeded.and_then(OnExceeded::longest_wait),
    };
    InFlight::new(&number.name, number.permits)
        .map_err(|error| problems.error(name.place, error.problem()))
        .ok()
        .map(|_| number)
}
