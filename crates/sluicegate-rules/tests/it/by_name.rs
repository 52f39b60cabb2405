//! Policies that are checked by name.

use std::sync::Arc;

use sluicegate_core::{MemoryStore, Store};
use sluicegate_rules::Rules;

use crate::support::parse;

const TEXT: &str = "
version: 1
policies:
  met: { quota: 5/min }
  asked: { quota: 3/h }
rules: [{ name: all, limit: met, key: client }]
";

#[test]
fn a_policy_that_no_rule_uses_can_be_open_and_keeps_what_was_spent_across_reloads() {
    let store: Arc<dyn Store> = MemoryStore::new().into();
    let rules = Rules::builder().open_all_policies().put(Arc::clone(&store), parse(TEXT)).unwrap();
    let left = |name: &str| {
        let limiter = store.limiters().get(name)?;
        Some(limiter.check("ada").now().unwrap().unwrap().remaining())
    };
    assert_eq!((left("asked"), left("met"), left("other")), (Some(2), Some(4), None));
    let changes = rules.replace(parse(&TEXT.replace("3/h", "30/h"))).unwrap();
    assert_eq!(changes.changed[0].0, "asked");
    assert_eq!(left("asked"), Some(28), "two of thirty are spent");
    // It closes when it leaves the file.
    rules.replace(parse(&TEXT.replace("  asked: { quota: 3/h }\n", ""))).unwrap();
    assert_eq!(left("asked"), None);
}

#[test]
fn by_default_it_is_not_open() {
    let store: Arc<dyn Store> = MemoryStore::new().into();
    let _rules = Rules::new(Arc::clone(&store), parse(TEXT)).unwrap();
    assert!(store.limiters().get("met").is_some() && store.limiters().get("asked").is_none());
}

#[test]
fn a_file_with_an_empty_list_of_rules_has_no_warnings() {
    let file = parse("version: 1\npolicies: { asked: { quota: 3/h } }\nrules: []\n");
    assert!(file.warnings().is_empty(), "{:?}", file.warnings());
}
