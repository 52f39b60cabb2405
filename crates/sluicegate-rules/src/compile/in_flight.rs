//! How many requests of a key are under way at once: the section `in_flight`, and the rules that name it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::in_flight::InFlight;
use sluicegate_core::{ConfigError, OnExceeded};
use sluicegate_tower::in_flight::{InFlightLimit, InFlightLimits};
use sluicegate_tower::key::RequestView;

use super::limits::{Compiled, Torn, is_exempt};
use super::{number, option};
use crate::at::At;
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{File, InFlightEntry};

/// The numbers by name, and which of them a rule uses.
pub(super) struct Numbers {
    all: HashMap<String, (At<String>, Option<Number>)>,
    used: RefCell<HashSet<String>>,
}

/// A number at once.
#[derive(Clone)]
pub(super) struct Number {
    name: String,
    permits: u64,
    longest: Option<Duration>,
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

    /// The number of this name, which is used from now on.
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

impl Compiled {
    /// The numbers of requests under way at once that each rule names. One that is `open` by its name goes on counting.
    pub(crate) fn in_flight(
        &self,
        open: &mut HashMap<String, InFlight>,
    ) -> Result<Vec<Option<InFlightLimit>>, ConfigError> {
        let numbers = self.rules.iter().filter_map(|rule| rule.in_flight.as_ref());
        let mut now = HashMap::new();
        for number in numbers {
            let in_flight = match open.get(&number.name) {
                Some(in_flight) => in_flight.clone(),
                None => InFlight::new(&number.name, number.permits)?,
            };
            in_flight.set_permits(number.permits)?;
            now.insert(number.name.clone(), in_flight);
        }
        *open = now;
        let limits = self.rules.iter().map(|rule| {
            let number = rule.in_flight.as_ref()?;
            let mut limit = InFlightLimit::new(open.get(&number.name)?.clone()).key(Arc::clone(&rule.key));
            if let Some(longest) = number.longest {
                limit = limit.wait_up_to(longest);
            }
            if let Some(action) = rule.on_missing_key {
                limit = limit.on_missing_key(action);
            }
            Some(limit)
        });
        Ok(limits.collect())
    }

    /// All of these limits, which apply where their rules do: to a request that comes to the rules, and of a group to the first rule
    /// that matches. Found out for all rules at once.
    pub(crate) fn at_once(&self, limits: &[Option<InFlightLimit>], torn: Torn) -> InFlightLimits {
        let [deny, exempt, choice] = [&self.deny, &self.exempt, &self.choice].map(Arc::clone);
        let mut place = 0..;
        let places: Vec<Option<usize>> =
            limits.iter().map(|limit| limit.as_ref().and_then(|_| place.next())).collect();
        let all = InFlightLimits::new(limits.iter().flatten().cloned()).headers(self.headers);
        all.select(move |request: RequestView<'_>| {
            let applying = choice.applying(request).filter_map(|rule| places.get(rule).copied().flatten());
            let applying: Vec<usize> = applying.collect();
            let passes_by = !applying.is_empty()
                && (deny.first(request).is_some() || torn(request) || is_exempt(&exempt, &deny, request));
            if passes_by { Vec::new() } else { applying }
        })
    }
}
