//! Values whose form the JSON Schema knows. A variable may stand for each of them.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use sluicegate_core::Algorithm;
use sluicegate_in_flight::adaptive::LimitAlgorithm;
use sluicegate_tower::respond::HeaderFields;

/// A variable, whose value a schema does not know.
const VARIABLE: &str = r"\$\{";

pub(super) fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": [1, "1"] })
}

/// A whole number, perhaps with words around it.
pub(super) fn number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "string"], "minimum": 0, "pattern": r"^[0-9]|\$\{" })
}

pub(super) fn algorithm(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<String> = Algorithm::ALL.iter().map(ToString::to_string).collect();
    // Two of them have a number behind their name.
    let with_number = r"^(leaky-bucket-queue-above|sliding-log-in)-[0-9]+$|\$\{";
    json_schema!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": with_number }] })
}

pub(super) fn limit_algorithm(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(LimitAlgorithm::ALL.map(LimitAlgorithm::as_str)), VARIABLE)
}

pub(super) fn mode(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["enforce", "shadow", "off"]), VARIABLE)
}

pub(super) fn on_outage(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["local", "allow", "deny"]), r"^[0-9]|\$\{")
}

pub(super) fn inherit(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["spent", "reset", "as-is", "proportional", "additive"]), VARIABLE)
}

pub(super) fn headers(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(HeaderFields::ALL.map(|fields| fields.to_string())), VARIABLE)
}

pub(super) fn ignore_or_keep(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["ignore", "keep"]), VARIABLE)
}

pub(super) fn all_or_new(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["all", "new"]), VARIABLE)
}

pub(super) fn on_exceeded(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["deny"]), r"^wait *[0-9]|\$\{")
}

/// The values of `on_exceeded` in a policy, which may also be a waiting room, or defer its requests.
pub(super) fn on_exceeded_of_policy(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["deny", "defer", "room"]), r"^wait *[0-9]|\$\{")
}

pub(super) fn on_missing_key(_: &mut SchemaGenerator) -> Schema {
    or_status(json!(["share", "skip"]))
}

pub(super) fn on_unreadable_body(_: &mut SchemaGenerator) -> Schema {
    or_status(json!(["match", "skip"]))
}

/// One of these words, or the status of a refusal.
fn or_status(words: Value) -> Schema {
    json_schema!({
        "anyOf": [
            { "enum": words },
            { "type": "integer", "minimum": 400, "maximum": 599 },
            { "type": "string", "pattern": r"^[45][0-9][0-9]$|\$\{" },
        ]
    })
}

pub(super) fn bytes(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["response"]), VARIABLE)
}

pub(super) fn bytes_of_request(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["request"]), VARIABLE)
}

pub(super) fn direction(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["down", "up", "both"]), VARIABLE)
}

pub(super) fn on_abort(_: &mut SchemaGenerator) -> Schema {
    one_of(json!(["reserved", "seen"]), VARIABLE)
}

pub(super) fn fleet(_: &mut SchemaGenerator) -> Schema {
    let word = one_of(json!(["leases", "deny-cache"]), VARIABLE);
    json_schema!({ "anyOf": [word, { "type": "array", "items": word, "minItems": 1 }] })
}

fn one_of(words: Value, pattern: &str) -> Schema {
    json_schema!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": pattern }] })
}

/// Accepts numbers and booleans where a text is read, because the parser reads them as texts, but a schema has to be told so.
pub(super) fn widen(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("type") == Some(&json!("string")) && !members.contains_key("pattern") {
                members.insert("type".to_owned(), json!(["string", "number", "boolean"]));
            }
            members.values_mut().for_each(widen);
        }
        Value::Array(members) => members.iter_mut().for_each(widen),
        _ => {}
    }
}
