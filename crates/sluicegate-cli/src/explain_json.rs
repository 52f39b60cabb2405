//! An explanation as JSON, for programs: `sluicegate explain --json`.
//!
//! ```json
//! { "version": 1,
//!   "outcome": "refused", "status": 429, "retry_after_ms": 12000, "why": "...",
//!   "rules": [
//!     { "section": "rules", "name": "login", "group": "endpoint", "applies": true, "why_not": null,
//!       "limits": [
//!         { "asks": { "policy": "login", "quotas": "login: 5/min (gcra)", "mode": "enforce", "counts_rejected": false,
//!             "tier": null,
//!             "key": "203.0.113.9", "cost": 1, "bandwidth": null,
//!             "stands": [ { "capacity": 5, "remaining": 0, "room_after_ms": 12000, "reset_after_ms": 60000 } ] } },
//!         { "why_not": "the request costs nothing" } ],
//!       "in_flight": { "name": "logins", "permits": 2, "shared": false, "wait_ms": 10000,
//!         "asks": { "key": "203.0.113.9", "remaining": 2 } },
//!       "rooms": [ { "name": "sale", "rate": "50/s" } ],
//!       "deferring": [ { "policy": "orders", "longest_body": null } ] } ] }
//! ```
//!
//! `rooms` are the waiting rooms that the request meets first. `deferring` are the policies whose excess the program keeps in its queue
//! although `outcome` says that the request is refused; `longest_body` is the most bytes of a body that the queue keeps, and null in a tool
//! without a queue. `bandwidth` is `down`, `up` or `both` for a limit on bodies. `in_flight` is null in a rule that names none, and has
//! `why_not` instead of `asks` if the request takes no permit.
//! `outcome` is `exempt`, `unlimited`, `uncounted`, `allowed`, `delayed` (with `wait_ms`) or `refused`. Times are whole milliseconds,
//! rounded up; times until there is room are lower bounds if `counts_rejected` says that refused requests count. Fields may be added within a
//! version; a version that changes a field has another number.

use serde_json::{Map, Value, json};
use sluicegate_core::support::ceil_millis;
use sluicegate_rules::{DeferralExplained, Explained, RoomExplained, RuleExplained};
use sluicegate_tower::in_flight::InFlightExplained;
use sluicegate_tower::limits::{LimitExplained, WouldBe};

/// The version of the shape.
const VERSION: u64 = 1;

pub(crate) fn document(explained: &Explained) -> Value {
    let mut document = outcome(&explained.outcome);
    document.insert("version".to_owned(), VERSION.into());
    document.insert("rules".to_owned(), explained.rules.iter().map(rule).collect());
    document.into()
}

fn outcome(outcome: &WouldBe) -> Map<String, Value> {
    let value = match outcome {
        WouldBe::Exempt => json!({ "outcome": "exempt" }),
        WouldBe::Unlimited => json!({ "outcome": "unlimited" }),
        WouldBe::Uncounted => json!({ "outcome": "uncounted" }),
        WouldBe::Delayed(wait) => json!({ "outcome": "delayed", "wait_ms": ceil_millis(*wait) }),
        WouldBe::Refused { status, retry_after, why } => json!({
            "outcome": "refused",
            "status": status.as_u16(),
            "retry_after_ms": retry_after.map(ceil_millis),
            "why": why,
        }),
        _ => json!({ "outcome": "allowed" }),
    };
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn rule(rule: &RuleExplained) -> Value {
    let RuleExplained { section, name, group, why_not, limits, in_flight, rooms, deferring, .. } = rule;
    let room = |room: &RoomExplained| json!({ "name": room.name, "rate": room.rate.to_string() });
    let deferral = |to: &DeferralExplained| json!({ "policy": to.policy, "longest_body": to.longest_body });
    json!({
        "section": section.to_string(),
        "name": name,
        "group": group,
        "applies": why_not.is_none(),
        "why_not": why_not,
        "limits": limits.iter().map(limit).collect::<Vec<_>>(),
        "in_flight": in_flight.as_ref().map(permit),
        "rooms": rooms.iter().map(room).collect::<Vec<_>>(),
        "deferring": deferring.iter().map(deferral).collect::<Vec<_>>(),
    })
}

fn permit(permit: &InFlightExplained) -> Value {
    let InFlightExplained { name, permits, is_shared, longest_wait, asks, .. } = permit;
    let (what, of) = match asks {
        Ok(asks) => ("asks", json!({ "key": asks.key.shown().to_string(), "remaining": asks.remaining })),
        Err(why) => ("why_not", json!(why)),
    };
    let wait_ms = longest_wait.map(ceil_millis);
    json!({ "name": name, "permits": permits, "shared": is_shared, "wait_ms": wait_ms, what: of })
}

fn limit(limit: &LimitExplained) -> Value {
    let asks = match &limit.asks {
        Ok(asks) => asks,
        Err(why) => return json!({ "why_not": why }),
    };
    let stands = asks.quotas.iter().map(|status| {
        json!({
            "capacity": status.capacity(),
            "remaining": status.remaining(),
            "room_after_ms": ceil_millis(status.available_after()),
            "reset_after_ms": ceil_millis(status.reset_after()),
        })
    });
    json!({ "asks": {
        "policy": asks.policy.name(),
        "quotas": asks.policy.to_string(),
        "mode": asks.policy.mode().to_string(),
        "counts_rejected": asks.policy.counts_rejected(),
        "tier": asks.tier,
        "key": asks.key.shown().to_string(),
        "cost": asks.cost,
        "bandwidth": asks.bandwidth.map(|direction| direction.to_string()),
        "stands": stands.collect::<Vec<_>>(),
    } })
}
