//! Regular expressions, and keys that the program finds: the parts of the language that other words cannot say.

use sluicegate_core::MemoryStore;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tower::key::HeaderKey;

use crate::support::{Folder, error, parse, passed, request};

/// A file with a rule about these requests, and with these sections.
fn file(sections: &str, rule: &str) -> String {
    format!(
        "version: 1\n{sections}\npolicies: {{ a: {{ quota: 5/min }} }}\nrules:\n  - {{ name: all, limit: a, key: everybody, {rule} }}\n"
    )
}

fn put(text: &str) -> Rules {
    Rules::new(MemoryStore::new(), parse(text)).expect("memory keeps all")
}

#[tokio::test]
async fn a_regular_expression_matches_whole_texts_of_every_part_of_a_request() {
    let asks = async |rules: &Rules, path: &str, headers: &[(&str, &str)]| {
        !rules.explain(&request(path, headers)).await.to_string().contains("not asked")
    };
    for (only_if, path, headers, matches) in [
        (r"path: { regex: '/v[0-9]+/.*' }", "/v12/users", &[][..], true),
        (r"path: { regex: '/v[0-9]+/.*' }", "/x/v12/users", &[], false),
        (r"path: { regex: '/v[0-9]+' }", "/v1/users", &[], false),
        (r"path: [/a, { regex: '/b|/c' }]", "/c", &[], true),
        (r"path: { regex: '/b|/c' }", "/b/x/c", &[], false),
        (r"host: { regex: 'shop-\d+\.example' }", "http://Shop-7.example/", &[], true),
        (r"host: { regex: 'shop-\d+\.example' }", "http://shop.example/", &[], false),
        (r"header: { x-plan: { regex: 'free|trial-.+' } }", "/", &[("x-plan", "trial-7")], true),
        (r"header: { x-plan: { regex: 'free|trial-.+' } }", "/", &[("x-plan", "freedom")], false),
        (r"header: { x-plan: [a, { regex: b+ }] }", "/", &[("x-plan", "bbb")], true),
        (r"query: { id: { regex: '[0-9a-f]{8}' } }", "/?id=00c0ffee", &[], true),
        (r"query: { id: { regex: '[0-9a-f]{8}' } }", "/?id=00c0ffee1", &[], false),
        (r"not: { path: { regex: '.*[.](css|js)' } }", "/app.js", &[], false),
        (r"not: { path: { regex: '.*[.](css|js)' } }", "/app", &[], true),
    ] {
        let rules = put(&file("", &format!("only_if: {{ {only_if} }}")));
        assert_eq!(asks(&rules, path, headers).await, matches, "{only_if} {path} {headers:?}");
    }
    let rules = put(&file("paths: { case: ignore }", "only_if: { path: { regex: '/Admin/.*' } }"));
    assert!(asks(&rules, "/aDMIN/x", &[]).await, "the case is ignored in both");
    let explained = rules.explain(&request("/x", &[])).await.to_string();
    assert!(explained.contains("path /x does not match regex /Admin/.*"), "{explained}");
}

#[test]
fn a_regular_expression_that_is_wrong_too_large_or_matches_nothing_is_a_mistake() {
    for (only_if, part) in [
        ("path: { regex: '/a(' }", "\"/a(\" is not a regular expression: unclosed group"),
        ("path: { regex: '/a)|(/b' }", "is not a regular expression: unopened group"),
        ("path: { regex: 'a/.*' }", "no path matches \"a/.*\""),
        ("header: { x: { regex: '((a{99}){99}){99}' } }", "is not a regular expression"),
        ("header: { x: { regex: a, present: true } }", ""),
        ("path: { present: true }", "a path is expected here"),
        ("host: { present: true }", "is not a host"),
    ] {
        let text = file("", &format!("only_if: {{ {only_if} }}"));
        let error = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(error.contains(part), "{only_if}: {error}");
    }
}

#[tokio::test]
async fn a_key_of_the_program_is_given_by_it_and_named_by_the_file() {
    let (folder, user) = (Folder::new(), || HeaderKey::new("x-user").expect("a name"));
    let text =
        "version: 1\npolicies: { a: { quota: 5/min } }\nrules:\n  - { name: all, limit: a, key: user }\n";
    let path = folder.0.join("rules.yaml");
    std::fs::write(&path, text).expect("a folder can be written");
    let rules = Rules::builder().key("user", user()).open(MemoryStore::new(), &path, Variables::none());
    let rules = rules.expect("the program gives the key");
    assert_eq!(passed(&rules, &[("x-user", "ada")]).await, 5);
    assert_eq!(passed(&rules, &[("x-user", "grace")]).await, 5);
    std::fs::write(&path, text.replace("5/min", "7/min")).expect("a folder can be written");
    rules.reload().expect("the key is known to a reload");
    assert_eq!(passed(&rules, &[("x-user", "ada")]).await, 2);

    // A tool does not know the program, so the file says so.
    let told = error(RulesFile::parse("rules.yaml", text, &Variables::none()));
    assert!(told.contains("\"user\" is not a key") && told.contains("user: program"), "{told}");
    let declared = || parse(&text.replace("policies", "keys: { user: program }\npolicies"));
    let told = error(Rules::new(MemoryStore::new(), declared()));
    assert!(told.contains("the key \"user\" is found by the program, and the program gives none"), "{told}");
    let tool = Rules::new(MemoryStore::new(), declared().without_rooms()).expect("a tool needs none");
    let explained = tool.explain(&request("/", &[("x-user", "ada")])).await.to_string();
    assert!(explained.contains("for shared"), "{explained}");
}

#[tokio::test]
async fn a_text_of_a_variable_is_shown_by_its_name_in_explanations() {
    let text = "version: 1
policies: { a: { quota: 5/min } }
rules:
  - name: all
    limit: a
    key: everybody
    only_if:
      path: ${SECRET_PATH}
  - name: other
    limit: a
    key: everybody
    only_if:
      host: ${SECRET_HOST}
";
    let variables: Variables =
        [("SECRET_PATH", "/hunter2hunter2"), ("SECRET_HOST", "swordfish.example")].into_iter().collect();
    let file = RulesFile::parse("rules.yaml", text, &variables).expect("it is good");
    let rules = Rules::new(MemoryStore::new(), file).expect("memory keeps all");
    let explained = rules.explain(&request("/", &[])).await.to_string();
    assert!(explained.contains("does not match ${SECRET_PATH}"), "{explained}");
    assert!(explained.contains("the rule wants ${SECRET_HOST}"), "{explained}");
    assert!(
        !format!("{explained}{:?}", rules.limits().explain(&request("/", &[])).await).contains("hunter2")
    );
    for wrong in [
        text.replace("key: everybody", "key: ${SECRET_PATH}"),
        text.replace("policies", "keys:\n  mine:\n    - header(${SECRET_HOST})\npolicies"),
        text.replace(
            "policies: { a: { quota: 5/min } }",
            "policies:\n  a: { quota: 5/min }\n  ${SECRET_HOST}: { quota: 5/min }",
        ),
    ] {
        let told = error(RulesFile::parse("rules.yaml", &wrong, &variables));
        assert!(told.contains("a variable is not put into a") && !told.contains("swordfish"), "{told}");
    }
}
