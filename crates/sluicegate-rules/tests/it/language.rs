//! The keys and the conditions that a file can say, a row each.

use http::Request;
use sluicegate_core::Key;

use crate::support::{parse, request, rules};

/// The keys of two requests under a rule.
async fn keys(key: &str, requests: [Request<()>; 2]) -> [Option<Key>; 2] {
    let text = format!(
        "version: 1\npolicies: {{ p: {{ quota: 5/min }} }}\nrules: [{{ name: r, limit: p, key: {key}, on_missing_key: skip }}]\n"
    );
    let rules = rules(&text);
    let mut found = Vec::new();
    for request in requests {
        let explained = rules.explain(&request).await;
        let asks = explained.rules[0].limits.first().and_then(|limit| limit.asks.as_ref().ok());
        found.push(asks.map(|asks| asks.key.clone()));
    }
    found.try_into().expect("two")
}

#[tokio::test]
async fn parts_of_a_request_are_keys_alone_and_together() {
    let full = "http://Shop.Example:8080//a;x=1?tenant=t1&b=2";
    for (key, same, differs) in [
        ("query(tenant)", "http://x/y?tenant=t%31", "http://x/y?tenant=t2"),
        ("path", "http://x/a/", "http://x/b"),
        ("host", "http://shop.example/", "http://other.example/"),
        ("method", "http://x/y", ""),
        ("\"host + path\"", "http://shop.example/a", "http://shop.example/b"),
        ("\"query(tenant) + header(x-user)\"", "http://x/?tenant=t1", "http://x/?tenant=t2"),
    ] {
        for (other, is_same) in [(same, true), (differs, false)] {
            if other.is_empty() {
                continue;
            }
            let headers = [("x-user", "ada")];
            let [one, two] = keys(key, [request(full, &headers), request(other, &headers)]).await;
            assert!(one.is_some() && (one == two) == is_same, "{key} {other}: {one:?} {two:?}");
        }
    }
    let [without, with] =
        keys("\"query(tenant) + header(x-user)\"", [request(full, &[]), request("/", &[("x-user", "a")])])
            .await;
    assert_eq!((without, with), (None, None), "it has only one of both");
    let [one, two] = keys(
        "cookie(session)",
        [request("/", &[("cookie", "session=a")]), request("/", &[("cookie", "session=b")])],
    )
    .await;
    assert!(one.is_some() && one != two);
    let file = parse(
        "version: 1\npolicies: { p: { quota: 5/min } }\nrules: [{ name: r, limit: p, key: query(q) + path }]\n",
    );
    assert!(
        file.warnings().iter().any(|warning| warning.to_string().contains("clients choose this key freely"))
    );
}

#[tokio::test]
async fn conditions_hold_for_the_requests_that_they_say() {
    for (condition, yes, no) in [
        ("path: /api*", "/apis/v1", "/ap"),
        ("path: [\"*.js\", /x]", "/a/b.js", "/a/b.css"),
        ("path: /a/**/b", "/a/x/y/b", "/a/b"),
        ("host: \"*.example.org\"", "http://a.b.Example.ORG/", "http://example.org/"),
        ("host: [example.net, \"*.example.org\"]", "http://example.net/", "http://badexample.org/"),
        ("not: { path: \"*.js\" }", "/a.css", "/a.js"),
    ] {
        let rules = rules(&format!(
            "version: 1\npolicies: {{ p: {{ quota: 5/min }} }}\nrules: [{{ name: r, limit: p, key: client, only_if: {{ {condition} }} }}]\n"
        ));
        for (target, is_met) in [(yes, true), (no, false)] {
            let explained = rules.explain(&request(target, &[])).await;
            assert_eq!(explained.rules[0].why_not.is_none(), is_met, "{condition} {target}: {explained}");
        }
    }
}
