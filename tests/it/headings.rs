//! What a page of ours must say, as rustdoc has it: clippy asks for `# Errors` and `# Panics`, and these tests for the rest.

use serde_json::Value;
use sluicegate_tests::docs::{CRATES, json_of};

fn docs_of(name: &str) -> Value {
    serde_json::from_str(&json_of(name)).expect("it is JSON")
}

/// Whether a caller gets a future that does something, and may drop it half way.
fn is_cancellable(function: &Value) -> bool {
    let output = &function["sig"]["output"];
    let is_decision =
        output["resolved_path"]["path"].as_str().is_some_and(|path| path.ends_with("DecisionFuture"));
    let bounds = output["impl_trait"].as_array().into_iter().flatten();
    let mut traits = bounds.filter_map(|bound| bound["trait_bound"]["trait"]["path"].as_str());
    function["header"]["is_async"] == true || is_decision || traits.any(|name| name.ends_with("Future"))
}

/// Functions of the suite for stores end with a test, and nothing is spent that anybody would miss. A future that is made of an answer or
/// of another future does nothing by itself.
fn is_apart(item: &Value) -> bool {
    let file = item["span"]["filename"].as_str().unwrap_or_default();
    file.contains("/conformance/") || file.ends_with("store/ask.rs") || file.ends_with("store/begun.rs")
}

#[test]
fn functions_that_may_be_cancelled_say_what_that_does() {
    let mut wrong = Vec::new();
    let mut right = 0;
    for name in CRATES {
        let docs = docs_of(name);
        let items = docs["index"].as_object().expect("there is an index");
        // A method of a trait is documented where the trait is.
        let of_traits = items.values().filter(|item| item["inner"]["impl"]["trait"].is_object());
        let of_traits: Vec<&Value> =
            of_traits.filter_map(|item| item["inner"]["impl"]["items"].as_array()).flatten().collect();
        for item in items.values().filter(|item| item["crate_id"] == 0 && !is_apart(item)) {
            if !is_cancellable(&item["inner"]["function"]) || of_traits.contains(&&item["id"]) {
                continue;
            }
            if item["docs"].as_str().is_some_and(|docs| docs.contains("# Cancel safety")) {
                right += 1;
            } else {
                wrong.push(format!("{} in {}", item["name"], item["span"]["filename"]));
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(right > 30, "only {right} functions were found");
}

#[test]
fn the_first_page_of_each_crate_has_an_example_and_says_when_not_to_use_it() {
    for name in CRATES {
        let docs = docs_of(name);
        let page = docs["index"][docs["root"].to_string()]["docs"].as_str().expect("the crate has a page");
        assert!(page.contains("```"), "{name} has no example");
        assert!(page.contains("When not to use it"), "{name} does not say when not to use it");
    }
}

#[test]
fn each_algorithm_says_its_source_its_rounding_and_the_size_of_its_state() {
    let docs = docs_of("sluicegate_core");
    let items = docs["index"].as_object().expect("there is an index");
    for name in ["FixedWindow", "SlidingLog", "SlidingCounter", "Gcra", "Refill", "Drain"] {
        let is_its_type = |item: &&Value| {
            let inner = &item["inner"];
            item["name"] == name && (inner["struct"].is_object() || inner["enum"].is_object())
        };
        let page = items.values().find(is_its_type).and_then(|item| item["docs"].as_str());
        let page = page.unwrap_or_else(|| panic!("{name} has a page"));
        for heading in ["# Source", "# Rounding", "# State"] {
            assert!(page.contains(heading), "{name} has no {heading}");
        }
    }
}
