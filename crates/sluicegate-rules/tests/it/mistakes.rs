//! Each mistake is told with its place, the value, and what would be accepted.

use sluicegate_core::MemoryStore;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tests::log::lines_of;

/// All that is wrong with a file whose parts between header and rules are given.
fn errors(text: &str) -> String {
    match RulesFile::parse("rules.yaml", text, &Variables::none()) {
        Ok(file) => panic!("it is good: {file:?}\n{text}"),
        Err(error) => error.to_string(),
    }
}

const RULES: &str = "rules:\n  - { name: all, limit: a, key: client }\n";

/// A file with one policy, of which a line is given.
fn policy(line: &str) -> String {
    format!("version: 1\npolicies:\n  a: {line}\n{RULES}")
}

/// A file with a rule, to whose words these are added.
fn rule(words: &str) -> String {
    format!(
        "version: 1\npolicies:\n  a: {{ quota: 5/min }}\nrules:\n  - {{ name: all, limit: a, key: client, {words} }}\n"
    )
}

#[test]
fn an_error_shows_place_value_and_what_would_be_accepted() {
    assert_eq!(
        errors(&policy("{ quota: [5/min, 20/fortnight] }")),
        "rules.yaml:3:26: error: \"20/fortnight\" is not a quota: \"fortnight\" is not a unit of time (ns, us, ms, s, min, h, d or w); write \"100/min\", \"10/s burst 20\", \"5 per minute\" or \"1000/1h\"\n  \
         3 |   a: { quota: [5/min, 20/fortnight] }\n    |                          ^^^^^^^^^"
    );
}

#[test]
fn values_that_are_wrong_are_told_all_at_once_in_the_order_of_the_file() {
    let text = "version: 2\npolicies:\n  a: { quota: 5/min, mode: loud, on_outage: no }\n  \"b c\": { quota: 0/min }\nrules:\n  - { name: x, limit: d, key: klient }\n";
    let errors = errors(text);
    let places: Vec<_> =
        errors.lines().filter_map(|line| line.strip_prefix("rules.yaml:")?.split(": error").next()).collect();
    assert_eq!(places, ["1:10", "3:28", "3:45", "4:3", "6:23", "6:31"], "{errors}");
}

#[test]
fn mistakes_of_shape_are_told_all_at_once_each_with_its_line_and_a_caret() {
    let text = "version: 1
policies:
  a: { quotas: 5/min, quota: 5/min }
  b:
    quota: 5/min
    modes: loud
  c: { quota: { x: 1 }, hidden: true }
  d:
    algorithm: gcra
rules:
  - { name: one, limit: a, key: client, cost: { header: x-cost, min: 1, missing: 9 } }
  - name: two
    limt: a
    key: client
    settle:
      jsn: usage.total
  - name: three
    limit: a
  - { name: four, limit: a, key: client }
headrs: all
";
    let errors = errors(text);
    let told: Vec<_> = errors.lines().filter_map(|line| line.strip_prefix("rules.yaml:")).collect();
    let places: Vec<_> = told.iter().filter_map(|line| line.split(": error").next()).collect();
    assert_eq!(places, ["3:8", "6:5", "7:15", "9:5", "11:47", "13:5", "16:7", "17:5", "20:1"], "{errors}");
    for word in [
        "did you mean \"quota\"?",
        "did you mean \"limit\"?",
        "\"max\" is missing here",
        "\"key\" is missing here",
    ] {
        assert!(errors.contains(word), "{word}: {errors}");
    }
    let carets =
        errors.lines().filter(|line| line.trim_start().starts_with('|') && line.ends_with('^')).count();
    assert_eq!(carets, 8, "all but that of the unknown section: {errors}");
    // In JSON, and with what is missing because something else is wrong.
    let json = r#"{"version": 1, "policies": {"a": {"quota": "5/min", "mod": "off"}}, "rules": [{"name": "all", "limit": "a", "key": {"x": 1}}, {"nam": "b"}]}"#;
    let error = RulesFile::parse("rules.json", json, &Variables::none()).unwrap_err();
    let texts: Vec<_> =
        error.problems().iter().map(|problem| problem.text().split(':').next().unwrap()).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
}

#[test]
fn a_number_at_once_that_stands_as_a_limit_is_told_where_it_belongs() {
    let text = rule("in_flight: exports").replace("policies", "in_flight: { exports: 2 }\npolicies");
    let told = errors(&text.replace("limit: a", "limit: exports"));
    assert!(told.contains("\"exports\" is a number of requests at once: write in_flight: exports"), "{told}");
}

#[test]
fn each_mistake_in_a_value_names_it() {
    let of_policy = [
        ("{ quota: 0/min }", "0"),
        ("{ quota: -1/min }", "\"-1\""),
        ("{ quota: 1.5/min }", "\"1.5\""),
        ("{ quota: 10 }", "\"10\" is not a quota"),
        ("{ quota: 1e3/min }", "\"1e3\""),
        ("{ quota: 99999999999999999999/min }", "too large"),
        ("{ quota: 5/0s }", "0"),
        ("{ quota: 10/100y }", "\"y\" is not a unit of time"),
        ("{ quota: 5/min burst 0 }", "burst"),
        ("{ quota: [] }", "at least one quota"),
        ("{ algorithm: gcrb, quota: 5/min }", "\"gcrb\""),
        ("{ algorithm: sliding-log, quota: 9999999/min }", "at most 1000000"),
        ("{ quota: 5/min, on_exceeded: wait }", "how long a request waits"),
        ("{ quota: 5/min, on_exceeded: queue }", "\"queue\""),
        (
            "{ quota: 5/min, on_exceeded: defer, count_rejected: true }",
            "a policy that defers has no \"count_rejected\"",
        ),
        (
            "{ quota: 5/min, on_exceeded: defer, overrides: { ada: 9/min } }",
            "a policy that defers has no \"overrides\"",
        ),
        (
            "{ quota: 5/min, on_outage: no }",
            "\"no\" does not say what happens while the store cannot be reached: use \"local\"",
        ),
        ("{ quota: 5/min, mode: loud }", "\"loud\" does not say"),
        (
            "{ quota: 5/min, suspend: { after: 100, for: 1h } }",
            "\"100\" is not a number of refusals in a time: write 100 in 10min",
        ),
        ("{ quota: 5/min, suspend: { after: 0 in 1h, for: 1h } }", "\"0\" is not a number of refusals"),
        ("{ quota: 5/min, suspend: { after: 5 in 0s, for: 1h } }", "0"),
        ("{ quota: 5/min, suspend: { after: 5 in 1h, for: soon } }", "\"soon\""),
        ("{ quota: 5/min, suspend: { after: 5 in 1h, for: 2h, up_to: 1h } }", "1h"),
        ("{ quota: 5/min, tighten: { to: 9/min, for: 1h } }", "9/min is not below 5/min"),
        ("{ quota: 5/min, tighten: { to: few, for: 1h } }", "\"few\" is not a quota"),
        ("{ quota: 5/min, tighten: { to: 2/min, for: 90d } }", "up to 30d"),
        (
            "{ quota: 5/min, tighten: { to: 2/min, for: 1h, agreed_by: none } }",
            "\"none\" is not a number of instances",
        ),
        (
            "{ quota: 5/min, tighten: { to: 2/min, for: 1h, keys: old } }",
            "\"old\" does not say which keys are tightened: use \"all\" or \"new\"",
        ),
        ("{ quota: 5/min, tighten: { to: 2/min } }", "for"),
        ("{ quota: 5/min, table_size: many }", "\"many\" is not a number of keys"),
    ];
    for (line, part) in of_policy {
        let errors = errors(&policy(line));
        assert!(errors.starts_with("rules.yaml:3:") && errors.contains(part), "{line}: {errors}");
    }
    let of_rule = [
        ("cost: 0", "\"0\" is not a number of units"),
        ("cost: 9", "cost 9 is above burst 5 of 5/min in policy \"a\": no request would ever pass"),
        ("cost: { header: x-u, min: 0, max: 3, missing: 1 }", "\"0\" is not a number of units"),
        ("cost: { header: x-u, min: 4, max: 3, missing: 1 }", "the least cost 4 is above the most, 3"),
        (
            "cost: { header: \"x u\", min: 1, max: 3, missing: 1 }",
            "\"x u\" is not the name of a header field",
        ),
        ("share: 2/1", "\"2/1\" is not a share"),
        ("share: NaN", "\"NaN\" is not a share"),
        ("refund_if: 7xx", "\"7xx\" is not a status"),
        ("on_missing_key: 200", "a status from 400 to 599"),
        ("only_if: { path: login }", "write \"/login\""),
        ("only_if: { path: [/a, \"/{id}/*.x\"] }", "has a capture and a '*'"),
        ("only_if: { client: [] }", "an empty list says nothing"),
        ("only_if: { client: }", "a text or a list of texts"),
        ("only_if: {}", "this condition says nothing"),
        ("only_if: { not: { header: {} } }", "no field is named here"),
        ("only_if: { host: \"localhost:3000\" }", "\"localhost:3000\" is not a host"),
        ("only_if: { path: //login }", "write \"/login\""),
        ("only_if: { method: get }", "\"get\" is not a method: write it in capitals"),
        ("only_if: { client: 10.0.0.0/33 }", "10.0.0.0/33"),
        ("only_if: { header: { \"X Y\": a } }", "\"X Y\" is not the name of a header field"),
        ("only_if: { not: { client: localhost } }", "localhost"),
    ];
    for (words, part) in of_rule {
        let errors = errors(&rule(words));
        assert!(errors.starts_with("rules.yaml:5:") && errors.contains(part), "{words}: {errors}");
    }
}

#[test]
fn a_share_takes_no_name_that_another_policy_has() {
    let text = "version: 1\npolicies:\n  a: { quota: 5/min }\n  a.x: { quota: 9/min }\nrules:\n  - { name: y, limit: a.x, key: client }\n  - { name: x, limit: a, share: 1/5, key: client }\n";
    assert!(
        errors(text).starts_with("rules.yaml:7:23: error: \"a.x\" is the name of another policy"),
        "{}",
        errors(text)
    );
}

#[test]
fn a_policy_that_a_request_may_meet_twice_is_worth_a_warning() {
    let text = "version: 1\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: client }\n  - { name: x, only_if: { path: /x }, limit: a, key: client }\n";
    let file = RulesFile::parse("rules.yaml", text, &Variables::none()).expect("it is good");
    let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("policy \"a\" is rule \"all\"'s, too"), "{warnings:?}");
}

#[test]
fn a_wrong_shape_is_told_with_the_nearest_word() {
    for (text, expected) in [
        (
            policy("{ quoto: 5/min }"),
            "rules.yaml:3:8: error: \"quoto\" is not known here: did you mean \"quota\"?",
        ),
        (policy("{ mode: shadow }"), "\"quota\" is missing here"),
        (rule("limits: b"), "\"limits\" is not known here: did you mean \"limit\"?"),
        (rule("name: b"), "\"name\" is there twice"),
        (String::new(), "the file is empty"),
        ("# only a comment\n".to_owned(), "the file is empty"),
        (format!("{}---\nversion: 1\n", policy("{ quota: 5/min }")), "a second document begins here"),
        ("version: 1\n\trules: []\n".to_owned(), "tab"),
        ("version: 1\nrules: []\n".to_owned(), "there are no rules"),
        ("version: 1\n".to_owned(), "there are no rules"),
        ("version: 1\npolicies: { a: { quota: 1/min } }\n".to_owned(), "there are no rules"),
        (rule("only_if: { path: /users/{id} }"), "put quotes around a value with braces"),
        (
            rule("cost: ${UNITS}"),
            "error: a variable in braces is not put in: write ${NAME} on a line of its own",
        ),
        (rule("cost: \"${UNITS}\""), "rules.yaml:5:48: error: a variable in quotes is not put in"),
        (
            policy("\n    quota: ${QUOTA}"),
            "rules.yaml:4:12: error: the environment variable \"QUOTA\" is not set",
        ),
    ] {
        let errors = errors(&text);
        assert!(errors.contains(expected), "{text}: {errors}");
    }
}

#[test]
fn names_that_are_not_there_are_told_with_the_nearest_one() {
    for (text, expected) in [
        (
            rule("group: g").replace("limit: a", "limit: b"),
            "there is no policy and there are no tiers \"b\": there are a",
        ),
        (rule("group: g").replace("key: client", "key: cliend"), "\"cliend\" is not a key: use client"),
        (
            rule("group: g").replace("key: client", "key: verified_before(client)"),
            "and \"client\" is not one: leave verified_before out",
        ),
        (
            rule("group: g").replace("key: client", "key: verified_before(header(x user))"),
            "\"x user\" cannot be the name of a header",
        ),
        (rule("group: g").replace("key: client", "key: jwt(sub)"), "this needs the section \"jwt\""),
        (
            format!("version: 1\npolicies:\n  a: {{ quota: 5/min }}\n  a: {{ quota: 6/min }}\n{RULES}"),
            "rules.yaml:4:3: error: \"a\" is there twice",
        ),
        (
            format!(
                "version: 1\npolicies:\n  a: {{ quota: 5/min }}\ntiers:\n  t: {{ by: header(x-plan), tiers: {{ free: b }}, default_tier: pro }}\n{RULES}"
            ),
            "\"pro\" is not among the tiers: free",
        ),
        (
            format!("version: 1\npolicies:\n  a: {{ quota: 5/min }}\nkeys:\n  client: [peer]\n{RULES}"),
            "\"client\" is a word of this file already",
        ),
    ] {
        let errors = errors(&text);
        assert!(errors.contains(expected), "{text}: {errors}");
    }
}

#[test]
fn a_secret_is_shown_nowhere() {
    let text = format!(
        "version: 1\njwt:\n  hs256: \"hunter2\"\n  hs512: hunter2\npolicies:\n  a: {{ quota: 5/min }}\n{RULES}"
    );
    let shape = errors(&text);
    assert!(shape.contains("rules.yaml:4:3") && !shape.contains("hunter2"), "{shape}");
    let short = errors(&text.replace("  hs512: hunter2\n", ""));
    assert!(short.contains("rules.yaml:3:10") && !short.contains("hunter2"), "{short}");
    let misspelt =
        errors(&text.replace("jwt:\n  hs256: \"hunter2\"\n  hs512: hunter2", "jwts: { hs256: hunter2 }"));
    assert!(misspelt.contains("did you mean \"jwt\"?") && !misspelt.contains("hunter2"), "{misspelt}");
    let variables = [("SECRET", "hunter2")].into_iter().collect();
    let text = text.replace("  hs512: hunter2\n", "").replace("\"hunter2\"", "${SECRET}");
    let error = RulesFile::parse("rules.yaml", &text, &variables).expect_err("it is too short").to_string();
    assert!(!error.contains("hunter2") && !format!("{variables:?}").contains("hunter2"), "{error}");
}

#[test]
fn large_and_hostile_files_end_at_their_budgets() {
    let large = format!("{}# {}\n", policy("{ quota: 5/min }"), "x".repeat(10 << 20));
    assert!(errors(&large).contains("at most 1048576 are read"));
    let mut laughs = String::from("version: 1\nkeys:\n  a0: &a0 [client, client]\n");
    for level in 1..40 {
        let before = level - 1;
        laughs.push_str(&format!("  a{level}: &a{level} [*a{before}, *a{before}]\n"));
    }
    errors(&laughs);
    errors(&format!("version: 1\nrules: {}", "[".repeat(100_000)));
}

#[test]
fn a_file_is_good_with_a_byte_order_mark_with_crlf_and_as_json() {
    let text = policy("{ quota: 5/min }");
    let json = r#"{"version": 1, "policies": {"a": {"quota": ["5/min", "20/h"]}}, "rules": [{"name": "all", "limit": "a", "key": "client", "cost": 2}]}"#;
    for text in [format!("\u{feff}{text}"), text.replace('\n', "\r\n"), json.to_owned()] {
        RulesFile::parse("rules", &text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_file_that_is_none_is_told_by_its_name() {
    for (path, expected) in
        [("/", "/: error: it is not a file"), ("/no/such", "/no/such: error: it cannot be read")]
    {
        let error = RulesFile::read(path, &Variables::none()).expect_err(path).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_policy_that_limits_nothing_and_a_key_that_clients_choose_are_worth_a_warning() {
    let text = "version: 1\npolicies:\n  a: { quota: 5/min }\n  b: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: header(x-user) }\n";
    let file = RulesFile::parse("rules.yaml", text, &Variables::none()).expect("it is good");
    let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
    assert!(
        warnings[0].starts_with("rules.yaml:4:3: warning: policy \"b\" limits no request"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].starts_with("rules.yaml:6:33: warning: clients choose this key freely"),
        "{warnings:?}"
    );
    assert_eq!(warnings.len(), 2);
}

#[test]
fn a_key_that_clients_write_and_something_in_front_has_verified_is_worth_no_line() {
    for (key, are_told) in [
        ("header(x-user)", true),
        ("verified_before(header(x-user))", false),
        ("verified_before( api_key(x-api-key) )", false),
        ("[verified_before(header(x-user)), api_key(x-api-key)]", true),
        ("named", false),
    ] {
        let text = format!(
            "version: 1\nkeys: {{ named: [verified_before(header(x-user)), client] }}\npolicies:\n  a: {{ quota: 5/min }}\nrules:\n  - {{ name: all, limit: a, key: {key} }}\n"
        );
        let lines = lines_of(|| {
            let file = RulesFile::parse("rules.yaml", &text, &Variables::none())
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(file.warnings().len(), usize::from(are_told), "{key}: {:?}", file.warnings());
            drop(Rules::new(MemoryStore::new(), file).expect("memory keeps all"));
        });
        let told = lines.iter().filter(|line| line.contains("makes up API keys")).count();
        assert_eq!(told > 0, are_told, "{key}: {lines:?}");
    }
}

#[test]
fn networks_that_are_written_as_others_or_rule_nobody_out_are_worth_a_warning() {
    let text = "version: 1\nclients: { proxies: [10.0.0.1/8, \"2001:db8::1/32\"] }\npolicies:\n  a: { quota: 5/min }\ndeny:\n  - { name: six, only_if: { client: [\"::/0\"] } }\n  - { name: one, only_if: { client: [192.0.2.0/24, 192.0.2.1, \"::ffff:192.0.2.1\"] } }\nrules:\n  - { name: all, limit: a, key: client }\n";
    let file =
        RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
    let starts = [
        "rules.yaml:2:22: warning: \"10.0.0.1/8\" has bits behind its prefix: it is taken as 10.0.0.0/8",
        "rules.yaml:2:34: warning: \"2001:db8::1/32\" has bits behind its prefix: it is taken as 2001:db8::/32",
        "rules.yaml:6:38: warning: every IPv6 address is in ::/0: leave this out if all clients are meant",
    ];
    assert_eq!(warnings.len(), starts.len(), "{warnings:?}");
    for (warning, start) in warnings.iter().zip(starts) {
        assert!(warning.starts_with(start), "{warning}");
    }
}

#[test]
fn proxies_that_hold_everybody_are_refused_also_in_parts() {
    for proxies in ["0.0.0.0/0", "\"::/0\"", "\"::ffff:0:0/96\"", "[0.0.0.0/1, 128.0.0.0/1]"] {
        let text = format!(
            "version: 1\nclients: {{ proxies: {proxies} }}\npolicies:\n  a: {{ quota: 5/min }}\n{RULES}"
        );
        let errors = errors(&text);
        assert!(errors.starts_with("rules.yaml:2:2"), "{errors}");
        assert!(
            errors.contains("would let every client choose its address: name the networks of the proxies;"),
            "{errors}"
        );
    }
}

#[test]
fn no_line_shows_a_value_that_requests_must_have() {
    let text = "version: 1\npolicies:\n  a: { quota: 5/min }\ndeny:\n  - name: x\n    only_if:\n      header:\n        \"x y\": s3cret\nexempt:\n  - { name: y, only_if: { query: { token: s3cret }, method: get } }\nrules:\n  - { name: all, limit: b, key: client, only_if: { header: { x-t: \"s3cret\" } } }\n";
    let errors = errors(text);
    assert_eq!(errors.matches("error: ").count(), 3, "{errors}");
    assert!(!errors.contains("s3cret"), "{errors}");
}

#[test]
fn what_a_request_may_cost_by_its_header_has_to_fit() {
    for (cost, wrong) in [("min: 6, max: 6, missing: 1", 6), ("min: 1, max: 5, missing: 7", 7)] {
        let errors = errors(&rule(&format!("cost: {{ header: x-units, {cost} }}")));
        assert!(
            errors.contains(&format!("cost {wrong} is above burst 5 of 5/min in policy \"a\"")),
            "{errors}"
        );
    }
    for (most, warnings) in [(5, 0), (6, 1)] {
        let text = rule(&format!("cost: {{ header: x-units, min: 1, max: {most}, missing: 5 }}"));
        let file = RulesFile::parse("rules.yaml", &text, &Variables::none())
            .unwrap_or_else(|error| panic!("{error}"));
        let told: Vec<_> = file.warnings().iter().map(|warning| warning.text()).collect();
        assert_eq!(told.len(), warnings, "{told:#?}");
        assert!(told.iter().all(|text| text.starts_with("cost 6, the most that header x-units may say,")));
    }
}

#[test]
fn an_apostrophe_in_a_text_quotes_no_variable() {
    let variables: Variables = [("X", "stop")].into_iter().collect();
    let named = |name: &str| {
        format!(
            "version: 1\npolicies:\n  a: {{ quota: 5/min }}\nrules:\n  - name: all\n    only_if:\n      header:\n        x: {name}\n    limit: a\n    key: client\n"
        )
    };
    let text = named("don't ${X}");
    RulesFile::parse("rules.yaml", &text, &variables).unwrap_or_else(|error| panic!("{error}"));
    for quoted in ["'don''t ${X}'", "\"${X}\"", "'${X}' # don't"] {
        let text = named(quoted);
        assert!(errors(&text).contains("a variable in quotes is not put in"), "{quoted}");
    }
}

/// Whoever wrote a rules file could once read the environment in the log and on the page.
#[test]
fn a_value_of_a_variable_is_shown_by_its_name_wherever_it_stands() {
    let secret =
        "Pa55w0rd q/w D4T4B4S3 xyzzy-qwfpg-zxcvb-neio-0123456789-hjkl-mnbvc-tyuiop-qwerty-asdfgh-zzz";
    for value in [secret, &secret[..8], "http://ada:hunter22@db.internal/5"] {
        let variables: Variables = [("DATABASE_SECRET", value)].into_iter().collect();
        for word in [
            "quota: ${DATABASE_SECRET}",
            "quota: ${DATABASE_SECRET}/min",
            "quota: 5/${DATABASE_SECRET}",
            "algorithm: ${DATABASE_SECRET}",
            "on_exceeded: ${DATABASE_SECRET}",
            "table_size: ${DATABASE_SECRET}",
            "quota_by: ${DATABASE_SECRET}",
            "nothing: ${DATABASE_SECRET}",
        ] {
            let quota = if word.starts_with("quota:") { "" } else { "quota: 5/min\n    " };
            let text = format!(
                "version: 1\npolicies:\n  a:\n    {quota}{word}\nrules:\n  - {{ name: all, limit: a, key: client }}\n"
            );
            hides(&text, value, &variables);
        }
        for word in [
            "limit",
            "key",
            "path",
            "method",
            "client",
            "cost",
            "name",
            "group",
            "on_missing_key",
            "replaces",
        ] {
            let (condition, named) = match word {
                "path" | "method" | "client" => ("    only_if:\n  ", ""),
                _ => ("", word),
            };
            let others = ["name: all", "limit: a", "key: client"]
                .into_iter()
                .filter(|other| !other.starts_with(named) || named.is_empty());
            let others: Vec<_> = others.map(|other| format!("    {other}\n")).collect();
            let text = format!(
                "version: 1\npolicies:\n  a: {{ quota: 5/min }}\nrules:\n  -\n{}{condition}    {word}: ${{DATABASE_SECRET}}\n",
                others.concat()
            );
            hides(&text, value, &variables);
        }
    }
    let own = "version: 1\npolicies:\n  a:\n    quota: ${SLUICEGATE_SECRET}\nrules: []\n";
    let error = RulesFile::parse("rules.yaml", own, &Variables::environment()).unwrap_err().to_string();
    assert!(error.contains("is a secret of the server"), "{error}");
}

/// No part of the value is in the error of this text.
fn hides(text: &str, value: &str, variables: &Variables) {
    let error = RulesFile::parse("rules.yaml", text, variables).expect_err(text).to_string();
    let shown = error.to_lowercase();
    for part in value.to_lowercase().as_bytes().windows(5) {
        let part = std::str::from_utf8(part).expect("it is ASCII");
        assert!(!shown.contains(part) || "database_secret".contains(part), "{part:?}: {error}");
    }
}

/// A symbolic link to another file once showed its first words in the log.
#[test]
fn a_file_that_is_no_rules_file_is_named_and_not_quoted() {
    for text in [
        "root:x:0:0:root:/root:/bin/sh\ndaemon:*:1:1:::\n",
        "s3cret-token",
        "[s3cret, s3cret]",
        "{ \"s3cret\": 1 }",
        "s3cret: {a: b}\n",
        "-----BEGIN PRIVATE KEY-----\ns3cret/root\n",
        "\"s3cret",
        "a: &s3cret b\n",
    ] {
        let error = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_err().to_string();
        assert_eq!(
            error, "rules.yaml: error: it is not a rules file: there is no \"version: 1\" in it",
            "{text}"
        );
    }
}

/// Once the value that the quotes leave was told as an error of its own, and first.
#[test]
fn a_variable_in_quotes_is_one_error_and_those_elsewhere_are_told() {
    let variables: Variables = [("X", "5")].into_iter().collect();
    let text = "version: 1\npolicies:\n  a:\n    quota: \"${X}/min\"\n    algorithm: \"${X}\"\n  b: { quota: 5/fortnight }\nrules:\n  - { name: all, limit: a, key: client }\n";
    let error = RulesFile::parse("rules.yaml", text, &variables).unwrap_err();
    let told: Vec<_> = error.problems().iter().map(|problem| (problem.line(), problem.text())).collect();
    let quoted = "a variable in quotes is not put in: write ${NAME} without quotes, on a line of its own";
    assert_eq!(told[..2], [(Some(4), quoted), (Some(5), quoted)]);
    assert!(told.len() == 3 && told[2].1.contains("\"fortnight\""), "{told:#?}");
}

#[test]
fn a_tool_that_knows_no_variable_warns_of_each_value_and_looks_at_the_rest() {
    let text = "version: 1\npolicies:\n  a:\n    quota: ${QUOTA}\n    table_size: ${KEYS}\n    mode: ${MODE}\nrules:\n  - name: all\n    limit: a\n    key: client\n    cost: ${COST}\n";
    let file = RulesFile::parse("rules.yaml", text, &Variables::none().or_placeholders())
        .unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<_> = file.warnings().iter().map(|warning| warning.text()).collect();
    assert_eq!(warnings.len(), 4, "{warnings:#?}");
    assert_eq!(warnings[0], "the environment variable QUOTA is not set here: 2000/s stands for this value");
    assert!(errors(text).contains("the environment variable"), "a service refuses it");
}

#[test]
fn tiers_that_clients_choose_by_a_header_are_warned_of() {
    let text = "version: 1\npolicies:\n  a: { quota: 5/min }\ntiers:\n  plan: { by: header(x-plan), tiers: { a: a }, default_tier: a }\nrules:\n  - { name: all, limit: plan, key: client }\n";
    let file =
        RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("clients choose their tier freely by this header"), "{warnings:#?}");
}

#[test]
fn values_that_look_like_regular_expressions_are_worth_a_warning() {
    for (condition, are_told) in [
        ("header: { user-agent: \"*bot*\" }", false),
        ("header: { accept: \"text/*\" }", false),
        ("header: { user-agent: \"^curl\" }", true),
        ("query: { token: \".+\" }", true),
        ("query: { page: [\"1\", \"[0-9]+\"] }", true),
        ("body: { model: \"(large|small)\" }", true),
        ("descriptor: { path: \"/api/.*\" }", true),
    ] {
        let text = format!(
            "version: 1\npolicies:\n  a: {{ quota: 5/min }}\nrules:\n  - {{ name: all, only_if: {{ {condition} }}, limit: a, key: everybody }}\n"
        );
        let file = RulesFile::parse("rules.yaml", &text, &Variables::none()).expect("it is good");
        let told: Vec<_> = file.warnings().iter().map(|warning| warning.text()).collect();
        assert_eq!(told.len(), usize::from(are_told), "{condition}: {told:#?}");
        assert!(told.iter().all(|text| text.contains("looks like a regular expression")), "{told:#?}");
    }
}

/// `check` said "good" of a file whose secret of `jwt` was a placeholder.
#[test]
fn each_unset_variable_is_worth_a_warning_also_where_its_text_is_not_read() {
    let text = "version: 1\nstore:\n  redis: ${URL}\n  secret: ${SECRET}\njwt:\n  hs256: ${KEY}\n  audience: ${AUDIENCE}\n  issuer: ${ISSUER}\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: jwt(sub) }\n";
    let file = RulesFile::parse("rules.yaml", text, &Variables::none().or_placeholders()).unwrap();
    let warnings: Vec<_> = file.warnings().iter().map(|warning| warning.text()).collect();
    for name in ["URL", "SECRET", "KEY", "AUDIENCE", "ISSUER"] {
        let told = format!("the environment variable {name} is not set here");
        assert_eq!(
            warnings.iter().filter(|text| text.starts_with(&told)).count(),
            1,
            "{name}: {warnings:#?}"
        );
    }
}

#[test]
fn a_rule_that_an_earlier_one_of_its_group_hides_is_worth_a_warning() {
    let hidden = |first: &str, second: &str| {
        let text = format!(
            "version: 1\npolicies:\n  a: {{ quota: 5/min }}\nrules:\n  - {{ name: first, limit: a, key: client, {first} }}\n  - {{ name: second, limit: a, key: client, {second} }}\n"
        );
        let file = RulesFile::parse("rules.yaml", &text, &Variables::none()).unwrap();
        file.warnings()
            .iter()
            .filter(|warning| warning.text().contains("rule \"first\" is before it in its group"))
            .count()
    };
    for (first, second, is_hidden) in [
        ("group: g", "group: g, only_if: { path: /login }", true),
        ("group: g", "group: g", true),
        (
            "group: g, only_if: { path: /api/* }",
            "group: g, only_if: { path: [/api/users, \"/api/{id}/x\"] }",
            true,
        ),
        (
            "group: g, only_if: { method: [GET, POST] }",
            "group: g, only_if: { method: POST, header: { x: y } }",
            true,
        ),
        ("group: g, only_if: { path: /api/* }", "group: g, only_if: { path: [/api/users, /other] }", false),
        ("group: g, only_if: { path: /login }", "group: g", false),
        ("group: g, only_if: { path: /login, method: POST }", "group: g, only_if: { path: /login }", false),
        ("group: g, only_if: { header: { x: y } }", "group: g", false),
        ("group: g, only_if: { not: { path: /a } }", "group: g, only_if: { path: /b }", false),
        ("group: g", "group: h", false),
        ("group: g", "group: g, only_if: { domain: edge, descriptor: { a: b } }", false),
    ] {
        assert_eq!(hidden(first, second), usize::from(is_hidden), "{first} | {second}");
    }
}
