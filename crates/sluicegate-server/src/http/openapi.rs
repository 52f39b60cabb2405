//! The OpenAPI document, generated from the types that read and write the JSON.

use std::sync::LazyLock;

use axum::body::Bytes;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::http::answer::CheckAnswer;
use crate::http::call::{HttpCall, Settlement};

/// The document, which all responses share.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| build().to_string().into());
    DOCUMENT.clone()
}

fn build() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    generator.subschema_for::<HttpCall>();
    let [settlement, answer] =
        [generator.subschema_for::<Settlement>(), generator.subschema_for::<CheckAnswer>()];
    let mut schemas = generator.take_definitions(true);
    let forms = |extra: &[&str], has_cost: bool, has_receipt: bool| {
        forms(&schemas["Call"], extra, has_cost, has_receipt)
    };
    let [decided, reserved, refunded, reset] = [
        forms(&[], true, false),
        forms(&["wait"], true, false),
        forms(&[], true, true),
        forms(&[], false, false),
    ];
    schemas.insert("Problem".to_owned(), problem());
    schemas.insert("BatchAnswer".to_owned(), batch_answer());
    let ask = |summary: &str, body: &Value, is_decided: bool| {
        let one_or_batch = json!({ "anyOf": [answer, { "$ref": "#/components/schemas/BatchAnswer" }] });
        let mut responses = json!({
            "200": { "description": "The answer.", "content": { "application/json": { "schema": one_or_batch } } },
            "default": { "description": "The call was not performed.", "content": problem_content() },
        });
        if is_decided {
            responses["429"] = json!({
                "description": "Refused. Retry-After says when the same call can be allowed; the rate limit fields are those that the rules file chooses.",
                "headers": { "Retry-After": { "schema": { "type": "integer", "minimum": 1 } } },
                "content": problem_content(),
            });
        }
        json!({ "post": {
            "summary": summary,
            "security": [{}, { "secret": [] }],
            "requestBody": { "required": true, "content": { "application/json": { "schema": body } } },
            "responses": responses,
        } })
    };
    let page = |summary: &str, media: &str| {
        let content = json!({ media: { "schema": { "type": "string" } } });
        json!({ "get": { "summary": summary, "responses": {
            "200": { "description": summary, "content": content },
            "default": { "description": "Not available.", "content": problem_content() },
        } } })
    };
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Sluicegate", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "MIT OR Apache-2.0" } },
        "paths": {
            "/v1/check": ask("Spend if allowed now. A described request waits where its policy waits.", &decided, true),
            "/v1/peek": ask("Report whether the cost fits, and spend nothing.", &decided, false),
            "/v1/reserve": ask("Spend if allowed within \"wait\"; answer when the turn comes, with a receipt.", &reserved, true),
            "/v1/settle": ask("Settle a reservation: the difference to its actual cost is charged or given back.", settlement.as_value(), false),
            "/v1/refund": ask("Give back units of a receipt, or units of a key as if they had been spent just now.", &refunded, false),
            "/v1/reset": ask("Reset keys: they have their whole burst again.", &reset, false),
            "/healthz": page("The process is alive.", "text/plain"),
            "/readyz": page("The rules are in force, the store has answered once, and the server is not shutting down.", "text/plain"),
            "/metrics": page("The metrics of the process, as Prometheus reads them.", "text/plain"),
            "/openapi.json": page("This document.", "application/json"),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": { "secret": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// The forms of a call: one check, several, a request, descriptors, a batch, and a receipt where there is one. The calls of a batch are answered each by
/// itself, and so may have any members. Members that a form does not have may be null.
fn forms(call: &Value, extra: &[&str], has_cost: bool, has_receipt: bool) -> Value {
    let cost: &[&str] = if has_cost { &["cost"] } else { &[] };
    let mut forms = vec![
        form(call, &["policy", "key"], &[extra, cost].concat()),
        form(call, &["checks"], extra),
        form(call, &["request"], extra),
        form(call, &["domain", "descriptors"], extra),
        form(call, &["batch"], &[]),
    ];
    if has_receipt {
        forms.push(form(call, &["receipt"], &["units"]));
    }
    json!({ "oneOf": forms })
}

/// A form of a call with these members.
fn form(call: &Value, required: &[&str], optional: &[&str]) -> Value {
    let all = call["properties"].as_object().into_iter().flatten();
    let members = all.map(|(name, schema)| {
        let is = |names: &[&str]| names.contains(&&**name);
        let member = match () {
            () if is(required) => without_null(schema),
            () if is(optional) => schema.clone(),
            () => json!({ "type": "null" }),
        };
        (name.clone(), member)
    });
    json!({
        "type": "object",
        "required": required,
        "properties": members.collect::<serde_json::Map<_, _>>(),
        "additionalProperties": false,
    })
}

/// The schema of an optional member that has to be there.
fn without_null(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
    }
    if let Some(ways) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        ways.retain(|way| way["type"] != "null");
    }
    schema
}

fn problem_content() -> Value {
    json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
}

/// RFC 9457; refusals have more members.
fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
        },
    })
}

fn batch_answer() -> Value {
    let of_one = CheckAnswer::json_schema(&mut SchemaSettings::draft2020_12().into_generator());
    let fields = of_one.get("properties").and_then(|fields| fields.get("allowed")).cloned();
    json!({
        "type": "object",
        "required": ["answers"],
        "additionalProperties": false,
        "properties": { "answers": { "type": "array", "items": {
            "description": "An answer with its status; without an answer, the status and its detail.",
            "type": "object",
            "required": ["status", "allowed"],
            "properties": { "status": { "type": "integer" }, "allowed": fields, "detail": { "type": "string" } },
        } } },
    })
}

#[cfg(test)]
mod tests {
    use super::document;

    #[test]
    fn the_document_is_written_once_for_all_responses() {
        assert_eq!(document().as_ptr(), document().as_ptr());
    }
}
