//! The public names of each crate, as a text that is committed: a name that goes or changes is a decision, and shows in a diff.
//!
//! `SLUICEGATE_API=overwrite cargo test --workspace --all-features --test it -- api::` renews the texts.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;
use sluicegate_tests::docs::{CRATES, json_of};

/// A crate as rustdoc knows it, and the lines that are found of it.
struct Api<'a> {
    index: &'a Value,
    lines: BTreeSet<String>,
}

impl Api<'_> {
    /// The item of this id, if it is of this crate.
    fn item(&self, id: &Value) -> Option<&Value> {
        self.index.get(id.to_string())
    }

    /// Adds an item under this path, and all that is public in it.
    fn add(&mut self, path: &str, id: &Value, name: Option<&str>) {
        let Some(item) = self.item(id).cloned() else { return };
        let (kind, inner) =
            item["inner"].as_object().and_then(|inner| inner.iter().next()).expect("it is something");
        let name = name.or_else(|| item["name"].as_str()).unwrap_or_default();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        match kind.as_str() {
            "module" => self.add_all(&path, &inner["items"]),
            "use" => return self.add_use(path.rsplit_once("::").map_or("", |(parent, _)| parent), inner),
            "function" => {
                let inputs = inner["sig"]["inputs"].as_array().into_iter().flatten();
                let names: Vec<_> = inputs.filter_map(|input| input[0].as_str()).collect();
                let is_async = if inner["header"]["is_async"] == true { "async " } else { "" };
                self.lines.insert(format!("{is_async}fn {path}({})", names.join(", ")));
                return;
            }
            "trait" => self.add_all(&path, &inner["items"]),
            "enum" => self.add_all(&path, &inner["variants"]),
            "struct" => self.add_public(&path, &inner["kind"]["plain"]["fields"]),
            _ => {}
        }
        self.lines.insert(format!("{kind} {path}"));
        for id in inner["impls"].as_array().into_iter().flatten() {
            let own = self.item(id).map(|item| item["inner"]["impl"].clone());
            // What traits ask for is theirs.
            if let Some(own) = own.filter(|own| own["trait"].is_null()) {
                self.add_public(&path, &own["items"]);
            }
        }
    }

    fn add_all(&mut self, path: &str, ids: &Value) {
        for id in ids.as_array().into_iter().flatten() {
            self.add(path, id, None);
        }
    }

    fn add_public(&mut self, path: &str, ids: &Value) {
        for id in ids.as_array().into_iter().flatten() {
            if self.item(id).is_some_and(|item| item["visibility"] == "public") {
                self.add(path, id, None);
            }
        }
    }

    /// A name of another module under the name that it has here, or of another crate.
    fn add_use(&mut self, path: &str, used: &Value) {
        let name = used["name"].as_str().unwrap_or_default();
        match self.item(&used["id"]).map(|item| item["inner"].clone()) {
            Some(inner) if used["is_glob"] == true => self.add_all(path, &inner["module"]["items"]),
            Some(_) => self.add(path, &used["id"].clone(), Some(name)),
            None => _ = self.lines.insert(format!("use {path}::{name}")),
        }
    }
}

fn text(docs: &Value) -> String {
    let mut api = Api { index: &docs["index"], lines: BTreeSet::new() };
    api.add("", &docs["root"], None);
    // Pages to read are no names.
    api.lines.retain(|line| !line.contains("::docs::"));
    api.lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_public_names_of_each_crate_are_those_that_are_committed() {
    let texts = Path::new(env!("CARGO_MANIFEST_DIR")).join("api");
    let is_renewed = env::var("SLUICEGATE_API").is_ok_and(|what| what == "overwrite");
    let mut wrong = Vec::new();
    for name in CRATES {
        let found = text(&serde_json::from_str(&json_of(name)).expect("it is JSON"));
        assert!(found.lines().count() > 1, "nothing was found in {name}");
        let file = texts.join(format!("{name}.txt"));
        if is_renewed {
            fs::write(&file, &found).expect("the text is written");
            continue;
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        let [then, now] = [&committed, &found].map(|text| text.lines().collect::<BTreeSet<_>>());
        wrong.extend(then.difference(&now).map(|line| format!("{name}: gone: {line}")));
        wrong.extend(now.difference(&then).map(|line| format!("{name}: new: {line}")));
    }
    assert!(
        wrong.is_empty(),
        "SLUICEGATE_API=overwrite cargo test --workspace --all-features --test it -- api:: renews tests/api:\n{}",
        wrong.join("\n")
    );
}
