//! The OpenAPI document: that it says what is asked and answered here.

use std::sync::OnceLock;

use serde_json::Value;
use sluicegate_tests::random::Random;

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
    if let (Some(least), Some(number)) = (schema["minimum"].as_u64(), value.as_i64())
        && u64::try_from(number).map_or(true, |number| number < least)
    {
        return Err(format!("{value} is below {least}"));
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

/// Writes calls by their schema, and others that differ from it in one place.
struct CallWriter(Random);

/// Texts of calls, some of which mean something in some place.
const TEXTS: [&str; 18] = [
    "login",
    "mail",
    "turns",
    "ada",
    "GET",
    "/login",
    "/members/7?a=b",
    "http://shop.example/health",
    "192.0.2.7",
    "192.0.2.7:443",
    "x-user",
    "2s",
    "1h",
    "",
    " ",
    "é",
    "a\u{0}b",
    "192.0.2.256",
];

impl CallWriter {
    fn one_of<'v, T>(&mut self, all: &'v [T]) -> &'v T {
        &all[self.0.index(all.len())]
    }

    /// A value that the schema allows.
    fn write(&mut self, schema: &Value, depth: u32) -> Value {
        if let Some(name) = schema["$ref"].as_str() {
            return self.write(document().pointer(&name[1..]).unwrap(), depth);
        }
        if let Some(ways) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
            let way = self.one_of(ways);
            return self.write(way, depth + 1);
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            _ => vec!["null"],
        };
        let least = |name: &str| schema[name].as_u64().unwrap_or(0);
        match *self.one_of(&types) {
            "object" => {
                let required: Vec<&str> =
                    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let all = schema["properties"].as_object().into_iter().flatten();
                let mut members: serde_json::Map<String, Value> = all
                    .filter(|(name, _)| required.contains(&&***name) || depth < 6 && self.0.below(3) == 0)
                    .map(|(name, of)| (name.clone(), of.clone()))
                    .collect();
                members.values_mut().for_each(|of| *of = self.write(&of.clone(), depth + 1));
                if schema["additionalProperties"].is_object() {
                    members
                        .insert("x-user".to_owned(), self.write(&schema["additionalProperties"], depth + 1));
                }
                Value::Object(members)
            }
            "array" => {
                let length = least("minItems") + self.0.below(3);
                (0..length).map(|_| self.write(&schema["items"], depth + 1)).collect()
            }
            "string" => {
                let texts: Vec<&str> = TEXTS
                    .into_iter()
                    .filter(|text| text.chars().count() as u64 >= least("minLength"))
                    .collect();
                Value::from(*self.one_of(&texts))
            }
            "integer" => Value::from(*self.one_of(&[least("minimum"), 1, 2, 500, u64::MAX])),
            "boolean" => Value::from(self.0.below(2) == 0),
            _ => Value::Null,
        }
    }

    /// Changes a value in one place.
    fn change(&mut self, value: &mut Value) {
        match value {
            Value::Object(members) if !members.is_empty() && self.0.below(4) > 0 => {
                let names: Vec<String> = members.keys().cloned().collect();
                let name = self.one_of(&names).clone();
                match self.0.below(5) {
                    0 => _ = members.remove(&name),
                    1 => _ = members.insert("unknown".to_owned(), Value::from(1)),
                    2 => {
                        let moved = members.remove(&name).unwrap();
                        members.insert("receipt".to_owned(), moved);
                    }
                    _ => self.change(&mut members[&name]),
                }
            }
            Value::Array(items) if !items.is_empty() && self.0.below(3) > 0 => {
                let place = self.0.index(items.len());
                self.change(&mut items[place]);
            }
            value => {
                let others =
                    serde_json::json!([null, true, -1, 0, 1.5, 1e30, "", "a", [], [1], {}, { "a": [] }]);
                *value = self.one_of(others.as_array().unwrap()).clone();
            }
        }
    }
}

#[tokio::test]
async fn calls_as_the_document_writes_them_are_read_and_others_are_refused_as_the_callers_mistake() {
    let served = Served::start().await;
    let paths = ["/v1/check", "/v1/peek", "/v1/reserve", "/v1/refund", "/v1/reset", "/v1/settle"];
    let (mut writer, mut valid) = (CallWriter(Random::new(7)), 0);
    for number in 0..1_200 {
        let path = paths[number % paths.len()];
        let body = &document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let mut call = writer.write(body, 0);
        if number % 2 == 1 {
            writer.change(&mut call);
        }
        let answered = Answered::of(served.post(path, &call).send().await.unwrap()).await;
        assert!(answered.status < 500, "{path} {call}: {answered:?}");
        match conforms(body, &call) {
            Ok(()) => {
                valid += 1;
                let is_read = !answered.detail().starts_with("the body cannot be read");
                assert!(is_read, "{path} {call}: {answered:?}");
            }
            // A policy that is not there is told first.
            Err(why) => {
                assert!(matches!(answered.status, 400 | 404 | 413), "{path} {call}: {why}: {answered:?}");
            }
        }
    }
    assert!(valid > 500, "{valid} calls were as the document writes them");
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
        r#"{"domain": "a", "descriptors": [{"entries": [{"key": "b", "value": "c"}], "hits_addend": 2}]}"#,
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
        r#"{"domain": "a", "descriptors": []}"#,
        r#"{"descriptors": [{"entries": [{"key": "b"}]}]}"#,
        r#"{"domain": "a", "descriptors": [{"entries": [{"key": "b"}], "hits_addend": 0}]}"#,
        r#"{"receipt": "a"}"#,
    ] {
        assert!(call(wrong).is_err(), "{wrong}");
    }
}
