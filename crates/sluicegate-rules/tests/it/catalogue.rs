//! Each mistake of the catalogue has a file, and a text that is told of it, in full: `catalogue/C01-empty.yaml` and
//! `catalogue/C01-empty.expected`.
//!
//! Elsewhere: C25 and C26 (budgets), C27 (UTF-8, byte order marks, CRLF) and C38 (no file) in `mistakes` and `reload`. Not of
//! these files: C29, because they are no TOML; C34, because no word of them is about leases; cycles (C16), because no policy names another.
//! A wait of any length is accepted (C35), because the queue of a layer has its bound, and a password with an `@` (C30) is read
//! as it is meant. Warnings of networks (C10) are in `mistakes`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use sluicegate_rules::{RulesFile, Variables, json_schema};

const FOLDER: &str = "tests/it/catalogue";

fn files() -> Vec<PathBuf> {
    let files = fs::read_dir(FOLDER).expect("it is there").map(|file| file.expect("it is there").path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    files.sort();
    files
}

fn name(path: &std::path::Path) -> String {
    path.file_name().expect("it has one").to_string_lossy().into_owned()
}

#[cfg(feature = "redis")]
#[test]
fn each_mistake_of_the_catalogue_is_told_in_full() {
    let variables = [("DEADLINE", "fast")].into_iter().collect();
    let mut others = String::new();
    for path in files() {
        let text = fs::read_to_string(&path).expect("it is text");
        let told = match RulesFile::parse(&name(&path), &text, &variables) {
            Ok(file) => panic!("{} is good: {file:?}", name(&path)),
            Err(error) => format!("{error}\n"),
        };
        if fs::read_to_string(path.with_extension("expected")).ok().as_ref() != Some(&told) {
            others.push_str(&format!("=== {}\n{told}", name(&path)));
        }
    }
    assert!(others.is_empty(), "{others}");
}

/// As a validator of draft 7 does, for the words that our schema has.
fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(members) = schema.as_object() else { return schema.as_bool().unwrap_or(true) };
    members.iter().all(|(word, rule)| match word.as_str() {
        "$ref" => {
            let place = rule.as_str().expect("a place").trim_start_matches('#');
            accepts(root, root.pointer(place).expect("it leads somewhere"), value)
        }
        "anyOf" => list(rule).iter().any(|schema| accepts(root, schema, value)),
        "allOf" => list(rule).iter().all(|schema| accepts(root, schema, value)),
        "enum" => list(rule).contains(value),
        "type" => match rule {
            Value::Array(types) => types.iter().any(|name| is(name, value)),
            name => is(name, value),
        },
        "pattern" => value.as_str().is_none_or(|text| {
            regex::Regex::new(rule.as_str().expect("a pattern")).expect("a good one").is_match(text)
        }),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().expect("a number")),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().expect("a number")),
        "minItems" => value.as_array().is_none_or(|all| all.len() as u64 >= rule.as_u64().expect("a number")),
        "items" => value.as_array().is_none_or(|all| all.iter().all(|item| accepts(root, rule, item))),
        "required" => value.as_object().is_none_or(|value| {
            list(rule).iter().all(|name| value.contains_key(name.as_str().expect("a name")))
        }),
        "properties" => value.as_object().is_none_or(|value| {
            value.iter().all(|(name, value)| rule.get(name).is_none_or(|schema| accepts(root, schema, value)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|value| {
            let known = members.get("properties").and_then(Value::as_object);
            let mut others =
                value.iter().filter(|(name, _)| !known.is_some_and(|known| known.contains_key(*name)));
            others.all(|(_, value)| accepts(root, rule, value))
        }),
        "$schema" | "title" | "description" | "definitions" | "default" | "format" => true,
        other => panic!("{other} is not known to this test"),
    })
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

/// What a schema cannot say: what the numbers in a quota mean, which names there are, which words exclude each other, and what
/// has to be read in another way than by its shape.
const BEYOND: [&str; 34] = [
    "C03", "C04", "C05", "C06", "C07", "C08", "C09", "C10", "C11", "C12", "C14", "C15", "C16", "C17", "C18",
    "C19", "C20", "C21", "C23", "C30", "C31", "C32", "C33", "C37", "C39", "C40", "C41", "C42", "C43", "C44",
    "C45", "C46", "C47", "C48",
];

#[test]
fn the_json_schema_accepts_what_is_good_and_refuses_what_a_schema_can() {
    let schema: Value = serde_json::from_str(&json_schema()).expect("it is JSON");
    for good in ["tests/it/tour.yaml", "tests/it/small.yaml"] {
        let value: Value =
            serde_saphyr::from_str(&fs::read_to_string(good).expect("it is text")).expect("it is YAML");
        assert!(accepts(&schema, &schema, &value), "{good}");
    }
    for path in files() {
        let text = fs::read_to_string(&path).expect("it is text");
        // What is no YAML never comes to a schema.
        let Ok(value) = serde_saphyr::from_str::<Value>(&text) else { continue };
        let is_refused = !accepts(&schema, &schema, &value);
        let is_beyond = BEYOND.iter().any(|number| name(&path).starts_with(number));
        assert!(is_refused || is_beyond, "{}", name(&path));
        if is_refused {
            RulesFile::parse("rules.yaml", &text, &Variables::none()).expect_err("the schema is right");
        }
    }
}
