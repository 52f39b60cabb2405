//! The JSON Schema, and the examples that show each of its words.

use std::collections::BTreeSet;

use serde_json::Value;
use sluicegate_rules::{RulesFile, Variables, json_schema};

const TOUR: &str = include_str!("tour.yaml");

/// Words that exclude one of the tour, each in a file of its own.
const OTHERS: [&str; 3] =
    ["clients:\n  hops: 2\n", "jwt:\n  public_key_file: tests/it/key.pem\n", "store:\n  memory: 1M keys\n"];

fn words(schema: &Value, all: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get("properties") {
                all.extend(properties.keys().cloned());
            }
            members.values().for_each(|member| words(member, all));
        }
        Value::Array(members) => members.iter().for_each(|member| words(member, all)),
        _ => {}
    }
}

fn shows(word: &str) -> bool {
    let word = format!("{word}:");
    TOUR.contains(&word) || OTHERS.iter().any(|other| other.contains(&word))
}

#[test]
fn each_word_of_the_schema_is_in_the_tour_and_the_tour_is_good() {
    let schema: Value = serde_json::from_str(&json_schema()).expect("it is JSON");
    let mut all = BTreeSet::new();
    words(&schema, &mut all);
    assert!(all.len() > 30, "{all:?}");
    let missing: Vec<_> = all.iter().filter(|word| !shows(word)).collect();
    assert!(missing.is_empty(), "no example of {missing:?}");
    for other in OTHERS {
        let text = format!(
            "version: 1\n{other}policies:\n  a: {{ quota: 5/min }}\nrules:\n  - {{ name: all, limit: a, key: client }}\n"
        );
        RulesFile::parse("other.yaml", &text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    }
    let file = RulesFile::read("tests/it/tour.yaml", &Variables::none().or_placeholders());
    let file = file.unwrap_or_else(|error| panic!("{error}"));
    let others = file.warnings().iter().map(ToString::to_string);
    let others: Vec<_> = others.filter(|warning| !warning.contains("the environment variable")).collect();
    assert_eq!(others, [""; 0]);
}

#[test]
fn each_word_of_the_schema_is_explained() {
    fn unexplained(schema: &Value, all: &mut Vec<String>) {
        if let Some(Value::Object(properties)) = schema.get("properties") {
            let silent = properties.iter().filter(|(_, property)| property.get("description").is_none());
            all.extend(silent.map(|(word, _)| word.clone()));
        }
        match schema {
            Value::Object(members) => members.values().for_each(|member| unexplained(member, all)),
            Value::Array(members) => members.iter().for_each(|member| unexplained(member, all)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    unexplained(&serde_json::from_str(&json_schema()).expect("it is JSON"), &mut all);
    assert_eq!(all, [""; 0]);
}
