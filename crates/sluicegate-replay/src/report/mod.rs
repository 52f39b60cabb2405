//! The outcome as one object for programs; the table, and the page with its pictures, have files of their own.
//!
//! Every name is a promise to scripts: see [`VERSION`]. Names are in alphabetical order, which the JSON library keeps.

mod page;
mod table;

use std::time::Duration;

use serde_json::{Value, json};

use crate::judge::RuleFigures;
use crate::outcome::{ReplayOutcome, UnusualSide};
use crate::read::time::rfc3339;

/// The version rises when a name changes its meaning or goes; names may be added.
const VERSION: u64 = 1;

impl ReplayOutcome {
    /// One object: `version`, `within_second`, `lines`, `left_out`, `span`, and `rules`, one for each rule and policy. Times are
    /// RFC 3339 in UTC.
    ///
    /// | name | value |
    /// |---|---|
    /// | `version` | 1; rises when a name goes or changes its meaning, and not when names are added |
    /// | `logs`, `format` | the names of the logs, and how they were read |
    /// | `time` | `arrival`, or `as logged` |
    /// | `within_second` | `spread` or `together`; null where the log has finer times |
    /// | `lines` | `read`, `no_request`, `not_understood`, `first_not_understood`, `late`, `outside`, `exempt`, `blocked` |
    /// | `left_out` | a list of `rule`, `count` and `reason` |
    /// | `forgotten_keys` | see [`forgotten`](Self::forgotten) |
    /// | `span` | `from` and `to`; null if nothing was replayed |
    /// | `unusual` | what is unusual in the log, a list: `kind` (`new_keys`, `network`, `agent`, `path`, `even`), `what`, `from`, `to`, `requests`, `keys` |
    /// | `rules` | a list: `name`, `policy`, `group` (`network`, `session`), `quota`, `algorithm`, `mode`, `asked`, `rejected`, `rejected_otherwise`, `keys`, `rejected_keys`, `worst` (`at`, `per_minute`), `shortest_wait_seconds`, `longest_wait_seconds`, `per_key_and_minute` (`p50`, `p90`, `p99`, `max`), `top` (`key`, `asked`, `rejected`), `compared` (`algorithm`, `rejected`, `reason`, `drops_burst`), `suggestion` (`limit`, `quota`, `share`, `rejected`, `rejected_keys`, `uncertainty`, `step`, `rejected_together`, `unusual`), `no_suggestion`, `frontier` |
    /// | `unusual` of a suggestion | what it was not learned from: `requests`, `keys`, `rejected`, `rejected_keys`, `share`, `with` (`limit`, `quota`, `rejected`: if that part is learned from too) |
    /// | `frontier` | `ordinary` and `unusual` (`requests`, `keys`); `points` and `knees`: lists of `limit`, `ordinary_rejected`, `ordinary_keys`, `unusual_rejected`, `unusual_keys` |
    ///
    /// All names are always there; a value that does not apply is null or an empty list.
    pub fn to_json(&self) -> String {
        let value = json!({
            "version": VERSION,
            "logs": self.logs,
            "format": (!self.formats.is_empty()).then(|| self.format_names()),
            "time": if self.knows_arrival() { "arrival" } else { "as logged" },
            "within_second": self.has_whole_seconds.then(|| self.within_second.as_str()),
            "lines": self.lines,
            "left_out": self.left_out,
            "forgotten_keys": self.forgotten,
            "span": self.span.map(|(from, to)| json!({"from": rfc3339(from), "to": rfc3339(to)})),
            "unusual": self.unusual,
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
        });
        format!("{value:#}")
    }

    /// Whether requests were replayed at the time of their arrival, and not at the logged time.
    pub(super) fn knows_arrival(&self) -> bool {
        !self.formats.is_empty() && !self.is_as_logged
    }
}

fn side(side: &UnusualSide) -> Value {
    json!({
        "requests": side.asked.requests,
        "keys": side.asked.keys,
        "rejected": side.rejected.requests,
        "rejected_keys": side.rejected.keys,
        "share": side.share.map(|share| share.to_string()),
        "with": side.with.as_ref().map(
            |with| json!({"limit": with.limit, "quota": quotas(&with.policy), "rejected": with.rejected}),
        ),
    })
}

fn rule(rule: &RuleFigures) -> Value {
    let seconds = |wait: Option<Duration>| wait.map(|wait| wait.as_secs_f64());
    let compared = rule.compared.iter().map(|compared| {
        json!({
            "algorithm": compared.algorithm.to_string(),
            "rejected": compared.rejected.as_ref().ok(),
            "reason": compared.rejected.as_ref().err(),
            "drops_burst": compared.drops_burst,
        })
    });
    json!({
        "name": rule.name,
        "policy": rule.policy.name(),
        "group": rule.group,
        "quota": quota(rule),
        "algorithm": rule.policy.algorithm().to_string(),
        "mode": rule.policy.mode().to_string(),
        "asked": rule.asked,
        "asked_under_own_quotas": rule.own_quotas,
        "rejected": rule.rejected,
        "rejected_otherwise": rule.rejected_otherwise,
        "keys": rule.keys,
        "rejected_keys": rule.rejected_keys,
        "worst": rule.worst,
        "shortest_wait_seconds": seconds(rule.shortest_wait),
        "longest_wait_seconds": seconds(rule.longest_wait),
        "per_key_and_minute": rule.per_minute,
        "top": rule.top,
        "compared": compared.collect::<Vec<_>>(),
        "suggestion": rule.suggestion.as_ref().map(|found| json!({
            "limit": found.limit,
            "quota": quotas(&found.policy),
            "share": found.share.to_string(),
            "rejected": found.rejected,
            "rejected_keys": found.rejected_keys,
            "uncertainty": found.uncertainty,
            "step": found.step,
            "rejected_together": found.together,
            "unusual": found.unusual.as_ref().map(side),
        })),
        "no_suggestion": rule.no_suggestion,
        "frontier": rule.frontier,
    })
}

/// The quotas of the rule's policy, as a rules file has them.
pub(super) fn quota(rule: &RuleFigures) -> String {
    quotas(&rule.policy)
}

pub(super) fn quotas(policy: &sluicegate_core::Policy) -> String {
    let quotas: Vec<String> = policy.quotas().iter().map(|quota| quota.quota().to_string()).collect();
    quotas.join(", ")
}
