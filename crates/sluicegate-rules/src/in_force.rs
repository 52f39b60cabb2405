//! The file that is in force: [`InForce`], and how another one takes its place.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sluicegate_core::in_flight::InFlight;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Policy, RateLimiter, Store};
use sluicegate_tower::in_flight::InFlightLimits;
use sluicegate_tower::limits::Limits;

use crate::compile::NamedStore;
use crate::error::RulesError;
use crate::explain::Explainer;
use crate::file::RulesFile;
use crate::source::Read;

/// The policies and numbers of a file that is in force, and its text.
pub(crate) struct InForce {
    pub policies: Vec<Policy>,
    /// The store that the file named when it was opened.
    pub store: Option<NamedStore>,
    /// The numbers at once, by name.
    in_flight: HashMap<String, InFlight>,
    /// The policies of code that those of the file have replaced, by name.
    code: HashMap<String, Policy>,
    pub read: Option<Read>,
    /// Whether code has put another file in its place since it was read.
    pub is_replaced: bool,
    /// The mistakes in the file when it was read last.
    pub error: Option<RulesError>,
}

impl InForce {
    /// Nothing so far, of a file that names this store.
    pub(crate) fn of(store: Option<NamedStore>) -> Self {
        Self {
            policies: Vec::new(),
            store,
            in_flight: HashMap::new(),
            code: HashMap::new(),
            read: None,
            is_replaced: false,
            error: None,
        }
    }

    /// Opens or replaces all policies, and makes the limits of them; or leaves all as it was. What leaves the file is again as
    /// code has it.
    pub(crate) fn put(
        &mut self,
        store: &Arc<dyn Store>,
        file: &RulesFile,
    ) -> Result<(Limits, InFlightLimits, Explainer), RulesError> {
        let policies = &file.compiled.policies;
        let names =
            |all: &[Policy]| all.iter().map(|policy| policy.name().to_owned()).collect::<HashSet<_>>();
        let (before, after) = (names(&self.policies), names(policies));
        let news = policies.iter().filter(|policy| !before.contains(policy.name()));
        let open = news.filter_map(|policy| store.limiters().get(policy.name()));
        let code: Vec<Policy> = open.map(|limiter| Policy::clone(&limiter.own_policy())).collect();
        let gone = self.policies.iter().filter(|old| !after.contains(old.name()));
        let back: Vec<Policy> = gone.filter_map(|gone| self.code.get(gone.name()).cloned()).collect();
        let all: Vec<Policy> = policies.iter().chain(&back).cloned().collect();
        let limits = RateLimiter::replace_all_with(Arc::clone(store), all, Inherit::Spent, |limiters| {
            file.compiled.limits(store, &limiters[..policies.len()])
        });
        let limits = limits.map_err(|error| RulesError::of_file(&file.name, &error.to_string()))?;
        for policy in back {
            self.code.remove(policy.name());
        }
        self.code.extend(code.into_iter().map(|policy| (policy.name().to_owned(), policy)));
        self.policies.clone_from(policies);
        let in_flight = file.compiled.in_flight(&mut self.in_flight);
        let in_flight = in_flight.map_err(|error| RulesError::of_file(&file.name, &error.to_string()))?;
        let open: Vec<RateLimiter> =
            policies.iter().filter_map(|policy| store.limiters().get(policy.name())).collect();
        let torn = file.compiled.torn(&open);
        let at_once = file.compiled.at_once(&in_flight, Arc::clone(&torn));
        Ok((limits, at_once, Explainer::of(&file.compiled, in_flight, torn)))
    }
}
