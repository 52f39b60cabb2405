use super::*;

fn shown(text: &str) -> Vec<String> {
    (1..=text.lines().count()).filter_map(|line| masked(text, line)).collect()
}

#[test]
fn values_of_header_fields_and_of_parameters_are_masked_wherever_they_stand() {
    let text = "\
clients: { header: x-forwarded-for }
rules:
  - { name: a, only_if: { path: \"/a/{id}\", header: { x-token: s3cret, \"x-b\": 'a b' }, method: GET }, key: client }
  - name: b
    only_if:
      header:
        x-token: s3cret # a note
        x-other: \"a, b\"
      query: { key: s3cret }
      path: /b
    cost: { header: x-units, min: 1 }
  - only_if: { query: {
      key: s3cret } , host: a.b }
    limit: api
  - only_if: { header: s3cret }
";
    assert_eq!(
        shown(text),
        [
            "clients: { header: x-forwarded-for }",
            "rules:",
            "  - { name: a, only_if: { path: \"/a/{id}\", header: { x-token: ******, \"***\": ***** }, method: GET }, key: client }",
            "  - name: b",
            "    only_if:",
            "      header:",
            "        x-token: ****** # a note",
            "        x-other: ******",
            "      query: { key: ****** }",
            "      path: /b",
            "    cost: { header: x-units, min: 1 }",
            "  - only_if: { query: {",
            "      key: ****** } , host: a.b }",
            "    limit: api",
            "  - only_if: { header: ****** }",
        ]
    );
}

#[test]
fn no_secret_is_shown_however_it_is_written() {
    for text in [
        "  - only_if: { header: { x-token: [s3cret] } }",
        "  - only_if: { header: { x-token: [a, \"s3cret\"] }, method: GET }",
        "  - only_if: { header: [s3cret] }",
        "  - only_if: { header: { x-token: { s3cret: s3cret } } }",
        "  - only_if: { header: &h { x-token: s3cret } }",
        "  - only_if: &o { header: { x-token: s3cret } }",
        "  - only_if: !!map { query: !!map { token: !!str s3cret } }",
        "  - only_if: { header: { x-token: \"a\\\"}}, s3cret\" } }",
        "  - only_if: { header: { x-token: 'it''s }}, s3cret' } }",
        "  - only_if: { header: { \"x-token\":\"}s3cret\" } }",
        "  - only_if: {\"header\":{\"x-token\":\"}s3cret\"}}",
        "  - only_if: { \"h\\u0065ader\": { x-token: s3cret } }",
        "  - only_if: { ? header : { x-token: s3cret } }",
        "  - only_if:\n      header:\n        - s3cret",
        "  - only_if:\n      header:\n      - s3cret",
        "  - only_if:\n      header:\n        s3cret",
        "  - only_if:\n      header: &h\n        x-token: s3cret",
        "  - only_if:\n      header:\n        x-token:\n          s3cret",
        "  - only_if:\n      header:\n        x-token: a\n          s3cret",
        "  - only_if:\n      header:\n        x-token:\n        - s3cret",
        "  - only_if:\n      header:\n        x-token: |\n          \"s3cret\n          s3cret: s3cret # s3cret",
        "  - only_if:\n      header:\n        x-token: >-\n\n          {s3cret",
        "  - only_if:\n      header:\n        x-token: &a !!str |2\n          s3cret",
        "  - only_if:\n      header:\n        x-token: \"a\\\"\n          s3cret: s3cret\"",
        "  - only_if:\n      ? header\n      : { x-token: s3cret }",
        "  - only_if:\n      header: |\n        s3cret\n      query: { token: s3cret }",
        "  - only_if: { headers: { x-token: s3cret } }",
        "  - only_if: { heder: s3cret, path: /a }",
        "  - only_if: { not: { heder: { x-token: s3cret } } }",
        "  - only_if: { \"qery\": { token: \"s3cret\" } }",
        "  - only_if: header x-token is s3cret",
        "  - only_if: [ header, x-token, s3cret ]",
        "  - only_if: \"header x-token is s3cret\"",
        "  - only_if:\n      - s3cret",
        "  - only_if:\n      headers:\n        x-token: s3cret",
        "  - only_if:\n      x-token: s3cret",
        "  - only_if:\n      not:\n        x-token: s3cret",
        "  - only_iff: { heder: { x-token: s3cret } }",
        "  - only_iff:\n      heder:\n        x-token: s3cret",
        "  - heder: { x-token: s3cret }",
        "  - heder: |\n      s3cret",
    ] {
        let text = format!("rules:\n{text}\n    limit: shown\n");
        let shown = shown(&text);
        assert!(!shown.iter().any(|line| line.contains("s3cret")), "{text}{shown:#?}");
        assert_eq!(shown.last().map(|line| &**line), Some("    limit: shown"), "{text}");
        let lengths = |lines: &[String]| lines.iter().map(|line| line.chars().count()).collect::<Vec<_>>();
        assert_eq!(lengths(&shown), lengths(&text.lines().map(str::to_owned).collect::<Vec<_>>()));
    }
}

#[test]
fn words_that_are_known_and_what_is_under_a_misspelt_one_of_a_rule_stay_readable() {
    for line in [
        "  - { name: a, only_if: { path: [/a, \"/b\"], tier: { plan: free } }, limits: api, key: client }",
        "  - { only_if: { \"path\": \"/a\", not: { client: 10.0.0.0/8 } }, cost: { header: x-units } }",
    ] {
        assert_eq!(shown(&format!("rules:\n{line}"))[1], line);
    }
    let masked = shown("rules:\n  - { only_if: { paht: /a, method: GET }, limit: api }");
    assert_eq!(masked[1], "  - { only_if: { paht: **, method: GET }, limit: api }");
}

#[test]
fn no_line_of_a_section_that_may_have_secrets_is_shown_however_the_section_begins() {
    for line in [
        "jwt: { hs256: s3cret }",
        "&a jwt: { hs256: s3cret }",
        "&a !!map jwt: { hs256: s3cret }",
        "!!str jwt: { hs256: s3cret }",
        "? jwt\n: { hs256: s3cret }",
        "\"jw\\u0074\": { hs256: s3cret }",
        "--- jwt: { hs256: s3cret }",
        "jtw:\n  hs256: s3cret",
        "jtw:\n- s3cret",
        "jwt: { hs256: \"a\nrules: s3cret\" }",
        "jwt: {\nrules: s3cret }",
        "keys: {\rjwt: { hs256: s3cret }",
        "keys: {}\rjwt:\n  hs256: s3cret",
        "{ jwt: { hs256: s3cret },\nrules: s3cret }",
    ] {
        // The lines before it are open.
        let text = format!("policies: {{}}\nrules: [ a ]\n{line}\n");
        for text in [&*text, line] {
            let shown = shown(text);
            assert!(!shown.iter().any(|line| line.contains("s3cret")), "{shown:#?}");
        }
    }
    assert_eq!(
        shown("&p policies: { a: 1 }\n&r \"rules\":\n- a"),
        ["&p policies: { a: 1 }", "&r \"rules\":", "- a"]
    );
    assert_eq!(shown("  rules: s3cret"), Vec::<String>::new(), "nobody knows where it stands");
}

#[test]
fn a_text_of_lines_that_is_no_secret_is_shown_and_opens_nothing() {
    let text = "rules:\n  - name: |\n      \"{ header:\n    limit: shown\n    key: client";
    assert_eq!(shown(text), text.lines().collect::<Vec<_>>());
}
