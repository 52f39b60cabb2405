//! Types of other crates in our signatures: each is a promise to keep to that crate's version.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluicegate_tests::docs::json_of;

/// What a crate may show; `std` and our own crates aside.
const ALLOWED: [(&str, &[&str]); 14] = [
    // The handle of the runtime that finishes the work of a store.
    ("sluicegate_core", &["tokio"]),
    // Of pin-project-lite it is a projection, of tokio the timers in what a call waits for: nobody can name either.
    (
        "sluicegate_tower",
        &[
            "axum_core",
            "bytes",
            "http",
            "http_body",
            "pin_project_lite",
            "reqwest",
            "reqwest_middleware",
            "tokio",
            "tower_layer",
            "tower_service",
        ],
    ),
    ("sluicegate_redis", &["deadpool", "deadpool_redis", "redis"]),
    ("sluicegate_axum", &["axum", "axum_core", "http", "tower_layer"]),
    ("sluicegate_fleet", &[]),
    // Snapshots can be written in any format, if an application wants that.
    ("sluicegate_in_flight", &["serde_core"]),
    ("sluicegate_observed", &["serde_core"]),
    ("sluicegate_resilient", &[]),
    ("sluicegate_overflow", &["bytes", "http", "tower_layer"]),
    // As `--json` writes it.
    ("sluicegate_replay", &["serde_core"]),
    ("sluicegate_rules", &["http", "tower_layer"]),
    ("sluicegate_server", &[]),
    ("sluicegate_status", &["http", "http_body", "tower_service"]),
    ("sluicegate", &[]),
];

/// The foreign crates whose items stand in the signatures of a crate, each with the items and where they are.
fn shown(docs: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for item in docs["index"].as_object().unwrap().values().filter(|item| item["crate_id"] == 0) {
        let is_made = item["inner"]["impl"]["is_synthetic"] == true;
        let is_blanket = item["inner"]["impl"]["blanket_impl"].is_object();
        if is_made || is_blanket {
            continue;
        }
        let place = format!("{}:{}", item["span"]["filename"], item["span"]["begin"][0]);
        let mut todo = vec![&item["inner"]];
        while let Some(value) = todo.pop() {
            todo.extend(value.as_array().into_iter().flatten());
            todo.extend(value.as_object().into_iter().flat_map(serde_json::Map::values));
            // A type or a trait by its path.
            let (Some(id), true) = (value["id"].as_u64(), value["path"].is_string()) else { continue };
            let path = &docs["paths"][id.to_string()];
            let Some(of) = path["crate_id"].as_u64().filter(|of| *of != 0) else { continue };
            let of = docs["external_crates"][of.to_string()]["name"].as_str().unwrap();
            let is_ours = of.starts_with("sluicegate") || matches!(of, "alloc" | "core" | "std");
            if !is_ours {
                found.entry(of.to_owned()).or_default().insert(format!("{} in {place}", value["path"]));
            }
        }
    }
    found
}

#[test]
fn signatures_show_types_of_the_allowed_crates_only() {
    let mut wrong = Vec::new();
    for (name, allowed) in ALLOWED {
        let shown = shown(&serde_json::from_str(&json_of(name)).expect("it is JSON"));
        // So that the list says what is, and that nothing is found for want of looking.
        let missing = allowed.iter().filter(|of| !shown.contains_key(**of));
        wrong.extend(missing.map(|of| format!("{name} shows nothing of {of}")));
        let other = shown.iter().filter(|(of, _)| !allowed.contains(&of.as_str()));
        wrong.extend(other.map(|(of, items)| format!("{name} shows {of}: {items:?}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
