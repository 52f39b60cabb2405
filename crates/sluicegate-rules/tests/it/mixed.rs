//! Policies whose quotas name their algorithms.

use std::time::Duration;

use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::{Rules, RulesFile, Variables};

use crate::support::{parse, passed, request, rules};

const PLAN: &str = "
version: 1
policies:
  free: { quota: [3/min, 5/d by token-bucket-aligned], overrides: { acme: [4/min, 6/d] } }
  pro: { quota: [7/min, 8/d by sliding-log] }
tiers:
  plan: { policy: free, by: header(x-plan), tiers: { free: [3/min, 5/d], pro: pro }, default_tier: free }
rules:
  - { name: all, limit: plan, key: header(x-user) }
";

#[tokio::test]
async fn a_tier_has_a_minute_that_refills_bit_by_bit_and_a_day_that_refills_at_midnight() {
    let clock = ManualClock::new();
    // An hour before midnight.
    clock.set(Duration::from_secs(20_000 * 86_400 + 23 * 3_600));
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
    let rules = Rules::new(&store, parse(PLAN)).expect("memory keeps all");
    for (plan, user, each) in
        [("free", "ada", [3, 2, 3]), ("pro", "bob", [7, 1, 0]), ("free", "acme", [4, 2, 4])]
    {
        let fields = [("x-plan", plan), ("x-user", user)];
        let mut passes = Vec::new();
        for wait in [0, 60, 3_600] {
            clock.advance(Duration::from_secs(wait));
            passes.push(passed(&rules, &fields).await);
        }
        // The log still counts what passed an hour before.
        assert_eq!(passes, each, "{user}");
        clock.advance(Duration::from_secs(86_400 - 60 - 3_600));
    }
}

#[tokio::test]
async fn a_file_that_changes_how_a_quota_is_counted_counts_what_was_spent() {
    let rules = rules(PLAN);
    assert_eq!(passed(&rules, &[("x-user", "ada")]).await, 3);
    let explained = rules.limits().explain(&request("/", &[("x-user", "ada")])).await.to_string();
    assert!(explained.contains("3/min, 5/d by token-bucket-aligned"), "{explained}");
    let changes = rules.replace(parse(&PLAN.replace("5/d by token-bucket-aligned", "9/d by sliding-log")));
    let changes = changes.expect("memory keeps it").to_string();
    assert!(
        changes.starts_with(
            "changed free 3/min, 5/d by token-bucket-aligned -> 3/min, 9/d by sliding-log, what was spent"
        ),
        "{changes}"
    );
    assert_eq!(passed(&rules, &[("x-user", "ada")]).await, 0);
}

#[test]
fn what_is_wrong_with_an_algorithm_is_marked_where_it_stands() {
    for (quota, place, problem) in [
        (
            "[5/min, 9/d by midnight]",
            "3:30",
            "\"midnight\" does not say by which algorithm the quota is counted: use \"fixed-window\"",
        ),
        ("[5/min, 9/d burst 3 by sliding-log]", "3:23", "sliding-log does not support a burst"),
        ("[5/min, 9/d by leaky-bucket-queue]", "3:23", "a queue has one quota"),
        (
            "[5/min, 9/d by sliding-log], overrides: { acme: [9/min, 9/d by gcra] }",
            "3:71",
            "the policy counts this quota by sliding-log: leave \"by gcra\" out",
        ),
        (
            "5/min by gcra, on_exceeded: room",
            "3:15",
            "the turns of a waiting room are spaced evenly: leave \"by gcra\" out",
        ),
    ] {
        let text = format!(
            "version: 1\npolicies:\n  a: {{ quota: {quota} }}\nrules:\n  - {{ name: all, limit: a, key: client }}\n"
        );
        let error =
            RulesFile::parse("rules.yaml", &text, &Variables::none()).expect_err("it is wrong").to_string();
        assert!(error.contains(&format!("rules.yaml:{place}: error")) && error.contains(problem), "{error}");
    }
}
