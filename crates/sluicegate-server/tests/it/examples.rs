//! The examples in the README of envoyproxy/ratelimit answer as its text says.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use sluicegate_server::Charge;

use crate::grpc::{ask, call, codes, descriptor};
use crate::support::Served;

type Entries<'a> = &'a [(&'a str, &'a str)];

/// A server with the rules of an example, which charges as Envoy's own server does.
struct Example {
    served: Served,
    domain: &'static str,
}

impl Example {
    async fn of(domain: &'static str, file: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/serve/ratelimit/");
        let rules = std::fs::read_to_string(format!("{folder}{file}")).unwrap();
        let served = Served::with(&rules, |builder| builder.charge(Charge::Each)).await;
        Self { served, domain }
    }

    async fn ask(&self, descriptors: &[Entries<'_>]) -> Vec<Code> {
        let descriptors = descriptors.iter().map(|entries| descriptor(entries)).collect();
        let answer = ask(&self.served, call(self.domain, descriptors)).await.unwrap();
        let codes = codes(&answer);
        assert_eq!(answer.overall_code() == Code::OverLimit, codes.contains(&Code::OverLimit));
        codes
    }

    /// How many of so many calls with one descriptor are allowed.
    async fn passed(&self, calls: usize, entries: Entries<'_>) -> usize {
        let mut passed = 0;
        for _ in 0..calls {
            passed += usize::from(self.ask(&[entries]).await == [Code::Ok]);
        }
        passed
    }
}

#[tokio::test]
async fn example_1_has_a_limit_for_each_value_and_none_for_others() {
    let example = Example::of("mongo_cps", "01-values.yaml").await;
    assert_eq!(example.passed(510, &[("database", "users")]).await, 500);
    assert_eq!(example.passed(5, &[("database", "default")]).await, 5, "it has a limit of its own");
    assert_eq!(example.passed(510, &[("database", "other")]).await, 510);
}

#[tokio::test]
async fn example_2_limits_messages_to_a_number_by_all_descriptors() {
    let example = Example::of("messaging", "02-nested.yaml").await;
    let marketing = |number| [("message_type", "marketing"), ("to_number", number)];
    for number in ["2061111111", "2062222222"] {
        for _ in 0..5 {
            assert_eq!(example.ask(&[&marketing(number), &[("to_number", number)]]).await, [Code::Ok; 2]);
        }
        let sixth = example.ask(&[&marketing(number), &[("to_number", number)]]).await;
        assert_eq!(sixth, [Code::OverLimit, Code::Ok], "one is over, so the call is");
        assert_eq!(example.passed(100, &[("to_number", number)]).await, 94, "each was charged");
    }
}

#[tokio::test]
async fn example_3_limits_each_address_and_blocks_one() {
    let example = Example::of("edge_proxy_per_ip", "03-blocked.yaml").await;
    for address in ["50.0.0.1", "50.0.0.2"] {
        assert_eq!(example.passed(15, &[("remote_address", address)]).await, 10);
    }
    assert_eq!(example.passed(5, &[("remote_address", "50.0.0.5")]).await, 0);
}

#[tokio::test]
async fn example_4_matches_descriptors_with_as_many_levels() {
    let descriptor: Entries<'_> = &[("key", "value"), ("subkey", "subvalue")];
    let example = Example::of("example4", "04-levels.yaml").await;
    assert_eq!(example.passed(310, descriptor).await, 310, "it does not match");
    assert_eq!(example.passed(310, &[("key", "value")]).await, 300);
    let example = Example::of("example4", "04-levels-nested.yaml").await;
    assert_eq!(example.passed(310, descriptor).await, 300);
}

#[tokio::test]
async fn example_5_tells_that_an_unlimited_descriptor_has_all_left() {
    let example = Example::of("internal", "05-unlimited.yaml").await;
    assert_eq!(example.passed(110, &[("azure", "x")]).await, 100);
    assert_eq!(example.passed(110, &[("ldap", "x")]).await, 110);
    let answer = ask(&example.served, call("internal", vec![descriptor(&[("ldap", "x")])])).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, u32::MAX);
}

#[tokio::test]
async fn example_6_refuses_nobody_in_shadow_mode() {
    let example = Example::of("example6", "06-shadow-mode.yaml").await;
    let user = |user| [("service", "auth-service"), ("user", user)];
    assert_eq!(example.passed(30, &user("user-a")).await, 30);
    assert_eq!(example.passed(30, &user("user-b")).await, 20);
}

#[tokio::test]
async fn example_7_replaces_a_limit_without_spending_from_it() {
    let example = Example::of("example7", "07-replaces.yaml").await;
    let (first, second): ([_; 2], [_; 2]) =
        ([("key_1", "value_1"), ("user", "bkthomps")], [("key_2", "value_2"), ("user", "bkthomps")]);
    for _ in 0..10 {
        assert_eq!(example.ask(&[&first, &second]).await, [Code::Ok; 2]);
    }
    assert_eq!(example.ask(&[&first, &second]).await, [Code::Ok, Code::OverLimit]);
    assert_eq!(example.passed(10, &first).await, 5, "that limit is not affected");
}

#[tokio::test]
async fn example_8_takes_the_most_specific_limit() {
    let example = Example::of("example8", "08-most-specific.yaml").await;
    for (value, allowed) in [("unspecified_value", 10), ("unspecified_value2", 10), ("value1", 20)] {
        assert_eq!(example.passed(30, &[("key1", value)]).await, allowed, "{value}");
    }
}

#[tokio::test]
async fn example_9_matches_wildcards_anywhere() {
    let example = Example::of("example9", "09-wildcards.yaml").await;
    for (key, value, allowed) in [
        ("key1", "value1", 20),
        ("key1", "valueXYZ", 20),
        ("key1", "other", 30),
        ("path", "/api/123/action", 20),
        ("path", "/api/user-id/action", 20),
        ("path", "/api/123/other", 30),
        ("route", "/api/v1/resource/123/action", 20),
        ("route", "/api/v2/resource/456/action", 20),
        ("route", "/api/v2/456/action", 30),
    ] {
        assert_eq!(example.passed(30, &[(key, value)]).await, allowed, "{key}: {value}");
    }
}

#[tokio::test]
async fn example_10_limits_each_combination_of_three_values() {
    let example = Example::of("example10", "10-three-levels.yaml").await;
    for [route, method, subject] in [["api", "GET", "123"], ["web", "POST", "456"], ["api", "GET", "456"]] {
        let entries = [("route", route), ("http_method", method), ("subject_id", subject)];
        assert_eq!(example.passed(70, &entries).await, 60);
    }
}

#[tokio::test]
async fn example_11_shares_one_limit_between_values_or_does_not() {
    let example = Example::of("example11", "11-shared.yaml").await;
    assert_eq!(example.passed(5, &[("files", "files/a.pdf")]).await, 5);
    assert_eq!(example.passed(5, &[("files", "files/b.csv")]).await, 5);
    assert_eq!(example.passed(1, &[("files", "files/c.txt")]).await, 0);
    assert_eq!(example.passed(20, &[("files_no_share", "files_no_share/a.pdf")]).await, 10);
    assert_eq!(example.passed(20, &[("files_no_share", "files_no_share/b.csv")]).await, 10);
}
