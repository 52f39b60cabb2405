//! Combines the limits on concurrent requests of rules that name a number under `in_flight`.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_core::{ConfigError, Store};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::{InFlightLimit, InFlightLimits};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::Selected;

use super::compiled::Compiled;
use super::in_flight::Number;
use super::sections::Sections;

impl Compiled {
    /// The numbers of requests under way at once that instances newly share on the store. They are made before anything is in force,
    /// because a store may be unable to share them.
    pub(crate) fn shared_permits(
        &self,
        store: &Arc<dyn Store>,
        open: &HashMap<String, InFlight>,
    ) -> Result<HashMap<String, InFlight>, ConfigError> {
        let mut shared = HashMap::new();
        for Number { name, at_once, .. } in self.rules.iter().filter_map(|rule| rule.in_flight.as_ref()) {
            let (before, sharing) = (open.get(name).and_then(InFlight::sharing), at_once.sharing());
            if sharing.is_some() && sharing != before && !shared.contains_key(name) {
                shared.insert(name.clone(), at_once.begun(name, store)?);
            }
        }
        Ok(shared)
    }

    /// The numbers of requests under way at once that each rule names. A number that is `open` under its name, and is not newly `shared`,
    /// keeps its count.
    pub(crate) fn in_flight(
        &self,
        store: &Arc<dyn Store>,
        shared: HashMap<String, InFlight>,
        open: &mut HashMap<String, InFlight>,
    ) -> Result<Vec<Option<InFlightLimit>>, ConfigError> {
        let mut now = shared;
        for Number { name, at_once, .. } in self.rules.iter().filter_map(|rule| rule.in_flight.as_ref()) {
            if now.contains_key(name) {
                continue;
            }
            let kept = open.get(name).filter(|in_flight| at_once.change(in_flight));
            let in_flight = kept.cloned().map_or_else(|| at_once.begun(name, store), Ok)?;
            now.insert(name.clone(), in_flight);
        }
        *open = now;
        let limits = self.rules.iter().map(|rule| {
            let number = rule.in_flight.as_ref()?;
            let mut limit = InFlightLimit::new(open.get(&number.name)?.clone()).key(Arc::clone(&rule.key));
            if let Some(longest) = number.longest {
                limit = limit.wait_up_to(longest);
            }
            if let Some(classes) = rule.class.clone() {
                limit = limit.class(move |request: RequestView<'_>| classes.class(request));
            }
            if let Some(action) = rule.asks.on_missing_key {
                limit = limit.on_missing_key(action);
            }
            Some(limit)
        });
        Ok(limits.collect())
    }

    /// Combines these limits. Each applies when its rule does: to a request that reaches the rules, and within a group only to the first
    /// rule that matches. The rules that apply are found once for all limits.
    pub(crate) fn at_once(&self, limits: &[Option<InFlightLimit>], sections: Sections) -> InFlightLimits {
        let mut place = 0..;
        let places = limits.iter().map(|limit| limit.iter().filter_map(|_| place.next()).collect()).collect();
        let select = sections.select(places);
        let all = InFlightLimits::new(limits.iter().flatten().cloned()).headers(self.headers);
        all.select(move |request: RequestView<'_>| Selected::from_iter(select(request)))
    }
}
