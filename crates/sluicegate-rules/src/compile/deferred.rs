//! Policies with `on_exceeded: defer`, whose requests are kept for later.
//!
//! A job takes its turn by the policy's own quotas, long after its request: what a request or its response says of them has no meaning for it, and is
//! refused by name.

use crate::error::Problems;
use crate::schema::{PolicyEntry, RuleEntry};

/// Whether a policy of the file defers, right or wrong.
pub(super) fn defers(entry: &PolicyEntry) -> bool {
    entry.on_exceeded.as_ref().is_some_and(|word| word.value == "defer")
}

/// Reports words that have no meaning in a policy that defers.
pub(super) fn check(entry: &PolicyEntry, problems: &mut Problems<'_>) {
    let quotas = "a job takes its turn by the quotas of the policy, and not of its key";
    let refusals = "a request that is kept for later is no refusal";
    let said = [
        entry.quota_by.as_ref().map(|word| ("quota_by", word.place, quotas)),
        entry.overrides.0.first().map(|(key, _)| ("overrides", key.place, quotas)),
        entry.count_rejected.as_ref().map(|word| ("count_rejected", word.place, refusals)),
        entry.suspend.as_ref().map(|word| ("suspend", word.value.after.place, refusals)),
    ];
    for (word, place, why) in said.into_iter().flatten() {
        problems.error(place, format!("a policy that defers has no {word:?}: {why}"));
    }
}

/// Reports words that have no meaning in a rule with a policy that defers.
pub(super) fn check_rule(given: &RuleEntry, is_about_descriptors: bool, problems: &mut Problems<'_>) {
    let said = [
        given.refund_if.as_ref().map(|word| ("refund_if", word.place)),
        given.settle.as_ref().map(|word| ("settle", word.place)),
        given.bandwidth.as_ref().map(|word| ("bandwidth", word.place)),
    ];
    for (word, place) in said.into_iter().flatten() {
        let text = format!(
            "{word:?} says nothing of requests that are kept for later: write a rule of its own, with a policy that does not defer"
        );
        problems.error(place, text);
    }
    if is_about_descriptors {
        let text =
            "a descriptor is no request that could be kept for later: name a policy that does not defer";
        problems.error(given.limit.place, text);
    }
}
