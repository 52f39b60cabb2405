//! The requests that come to the doors of the file's waiting rooms.

use std::sync::Arc;

use sluicegate_tower::key::RequestView;
use sluicegate_tower::room::Door;
use smallvec::SmallVec;

use super::compiled::{Compiled, Unclear, is_exempt};
use crate::rooms::Doors;

impl Compiled {
    /// The rooms of each rule, in its order, by their places.
    pub(crate) fn rooms_of_rules(&self) -> impl Iterator<Item = &[usize]> {
        self.rules.iter().map(|rule| &*rule.rooms)
    }

    /// Joins the doors of the rooms. A request comes to a door where the rules of its room apply: when it reaches the rules, and within a
    /// group only by the first rule that matches.
    pub(crate) fn doors(&self, each: Vec<Arc<dyn Door>>, unclear: Unclear) -> Doors {
        if each.is_empty() {
            return Doors::default();
        }
        let [deny, exempt, choice] = [&self.deny, &self.exempt, &self.choice].map(Arc::clone);
        let of_rules: Vec<Vec<usize>> = self.rooms_of_rules().map(<[usize]>::to_vec).collect();
        let select = move |request: RequestView<'_>| {
            let mut found = SmallVec::<[usize; 2]>::new();
            for room in choice.applying(request).filter_map(|rule| of_rules.get(rule)).flatten() {
                if !found.contains(room) {
                    found.push(*room);
                }
            }
            let passes_by = !found.is_empty()
                && (deny.first(request).is_some()
                    || unclear(request).is_some()
                    || is_exempt((&exempt, &deny), &unclear, request));
            if passes_by { SmallVec::new() } else { found }
        };
        Doors { each, select: Some(Box::new(select)) }
    }
}
