use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::algorithm::{Anchor, Rule, State};
use crate::memory::slot::QuotaRules;
use crate::{Algorithm, Quota};

/// Adds one to what the table knows of a key, as a decision does.
fn add_one(table: &WideTable, key: u64) {
    let rule = Rule::new(Algorithm::FixedWindow(Anchor::Epoch), Quota::per_second(9));
    let rule = QuotaRules::new(rule.expect("the quota is good"));
    let mut set = table.lock(0);
    let slot = set.find(key << 32);
    let mut kept = set.get(slot);
    kept.state = State::new(10, kept.state.aux + 1);
    set.put(slot, key << 32, kept, &rule, 0);
}

#[test]
fn no_interleaving_loses_an_update() {
    loom::model(|| {
        let table = Arc::new(WideTable::new(3, OnFull::Forget, &std::sync::Arc::default()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            add_one(&other, 1);
            add_one(&other, 2);
        });
        add_one(&table, 1);
        thread.join().unwrap();
        let set = table.lock(0);
        assert_eq!([1, 2].map(|key: u64| set.get(set.find(key << 32)).state.aux), [2, 1]);
    });
}
