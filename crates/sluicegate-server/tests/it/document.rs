//! The OpenAPI document: that it says what is asked and answered here.

use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Answered, Served};

/// The document that the server serves, which all tests compare with.
static DOCUMENT: OnceLock<Value> = OnceLock::new();

/// Reads it once.
pub(crate) fn learn(document: &Value) -> &'static Value {
    DOCUMENT.get_or_init(|| document.clone())
}

fn document() -> &'static Value {
    DOCUMENT.get_or_init(|| {
        // A server is asked for it on a thread of its own, because a test may be anywhere.
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let served = Served::start().await;
                served.get("/openapi.json").send().await.unwrap().json().await.unwrap()
            })
        });
        thread.join().unwrap()
    })
}

/// Checks that a call which the document does not allow is refused as one that cannot be read, or is too large.
pub(crate) fn agrees(path: &str, call: &Value, status: u16) {
    let body = &document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert!(body.is_object(), "{path} is in the document");
    if let Err(why) = conforms(body, call) {
        assert!(
            status == 400 || status == 413,
            "{status}: the document does not allow {call} at {path}: {why}"
        );
    }
}

/// Checks that the document allows this answer.
pub(crate) fn allows_answer(path: &str, answered: &Answered) {
    let responses = &document()["paths"][path]["post"]["responses"];
    let own = &responses[answered.status.to_string()];
    let response = if own.is_null() { &responses["default"] } else { own };
    let media = answered.field("content-type");
    let schema = &response["content"][media]["schema"];
    assert!(schema.is_object(), "{path}: {} of {media} is in the document: {answered:?}", answered.status);
    if let Err(why) = conforms(schema, &answered.body) {
        panic!("the document does not allow {answered:?} at {path}: {why}");
    }
    for (name, _) in response["headers"].as_object().into_iter().flatten() {
        assert!(!answered.field(name).is_empty(), "{path}: {name} is missing: {answered:?}");
    }
}

/// Whether a value is as the schema says, as far as our document says things.
fn conforms(schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#").expect("references are within the document");
        return conforms(document().pointer(name).expect("it is there"), value);
    }
    if let Some(ways) = schema["anyOf"].as_array() {
        let mut wrong = Vec::new();
        for way in ways {
            match conforms(way, value) {
                Ok(()) => return Ok(()),
                Err(why) => wrong.push(why),
            }
        }
        return Err(wrong.join(", and "));
    }
    if let Some(ways) = schema["oneOf"].as_array() {
        let wrong: Vec<_> = ways.iter().filter_map(|way| conforms(way, value).err()).collect();
        return if wrong.len() + 1 == ways.len() { Ok(()) } else { Err(wrong.join(", and ")) };
    }
    let length = value.as_str().map(|text| text.chars().count()).or_else(|| value.as_array().map(Vec::len));
    for (least, most) in [("minLength", "maxLength"), ("minItems", "maxItems")] {
        let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
        let is_within = |length| {
            bound(least).is_none_or(|least| least <= length) && bound(most).is_none_or(|most| length <= most)
        };
        if !length.is_none_or(is_within) {
            return Err(format!("{value} has another length"));
        }
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is a type that no test knows"),
    };
    if !types.is_empty() && !types.iter().any(|name| is(name)) {
        return Err(format!("{value} is none of {types:?}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(name).is_none() {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(of), _) => conforms(of, member).map_err(|why| format!("{name}: {why}"))?,
            (None, Value::Bool(false)) => return Err(format!("{name} is not known")),
            (None, of @ Value::Object(_)) => conforms(of, member)?,
            (None, _) => {}
        }
    }
    for member in value.as_array().into_iter().flatten() {
        conforms(&schema["items"], member)?;
    }
    Ok(())
}

#[tokio::test]
async fn each_path_of_the_document_is_served_and_none_else_is() {
    let served = Served::start().await;
    let document: Value = served.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let document = learn(&document);
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 10);
    for (path, ways) in paths {
        for method in ways.as_object().unwrap().keys() {
            let response = match &**method {
                "get" => served.get(path).send().await.unwrap(),
                _ => served.post(path, &serde_json::json!({})).send().await.unwrap(),
            };
            assert!(
                !matches!(response.status().as_u16(), 404 | 405) || path == "/metrics",
                "{method} {path}"
            );
        }
    }
    for (path, status) in [("/v1/charge", 404), ("/", 404), ("/healthz", 405)] {
        let answered = Answered::of(served.post(path, &serde_json::json!({})).send().await.unwrap()).await;
        assert_eq!(answered.status, status, "{path}");
        assert!(answered.detail().contains("/openapi.json"), "{path}: {answered:?}");
    }
}

#[test]
fn the_document_tells_right_from_wrong() {
    let call = |text: &str| {
        let body = &document()["paths"]["/v1/check"]["post"]["requestBody"]["content"]["application/json"];
        conforms(&body["schema"], &serde_json::from_str(text).unwrap())
    };
    for good in [
        r#"{"policy": "a", "key": "b", "cost": 2}"#,
        r#"{"policy": "a", "key": ["b", "c"]}"#,
        r#"{"policy": "a", "key": {"address": "192.0.2.7"}}"#,
        r#"{"checks": [{"policy": "a", "key": 7}]}"#,
        r#"{"request": {"path": "/", "headers": {"a": "b", "c": ["d", "e"]}}}"#,
        r#"{"batch": [{"policy": "a", "key": "b"}]}"#,
        r#"{"policy": "a", "key": "b", "checks": null, "cost": null}"#,
    ] {
        assert_eq!(call(good), Ok(()), "{good}");
    }
    for wrong in [
        r#"{"policy": 7, "key": "b"}"#,
        r#"{"policy": "a", "key": "b", "cots": 2}"#,
        r#"{"checks": [{"policy": "a"}]}"#,
        r#"{"request": {"headers": {}}}"#,
        r#"{"batch": [{"policy": "a", "keys": "b"}]}"#,
        r#"{}"#,
        r#"{"policy": "a"}"#,
        r#"{"policy": "a", "key": "b", "checks": []}"#,
        r#"{"policy": "a", "key": "b", "wait": "1s"}"#,
        r#"{"policy": "a", "key": ""}"#,
        r#"{"policy": "a", "key": []}"#,
        r#"{"checks": []}"#,
        r#"{"receipt": "a"}"#,
    ] {
        assert!(call(wrong).is_err(), "{wrong}");
    }
}
