use super::*;

fn lines(text: &str) -> Vec<&str> {
    (1..=text.lines().count()).filter_map(|line| shown(text, line)).collect()
}

#[test]
fn a_rule_is_shown_up_to_the_first_word_that_may_have_a_secret_behind_it() {
    let text = "\
rules:
  - { name: a, only_if: { path: [/a, \"/b/{id}\"], method: GET }, quotas: api, key: client }
  - { name: a, only_if: { \"path\": \"/a\", not: { client: 10.0.0.0/8 } }, cost: 3, limit: api, key: client }
  - name: b
    only_if:
      path: /b
      header:
        x-token: s3cret
    limit: api
  - only_if: { query: {
      key: s3cret } , host: a.b }
    limit: api
  - name: c
    key: client
";
    assert_eq!(
        lines(text),
        [
            "rules:",
            "  - { name: a, only_if: { \"path\": \"/a\", not: { client: 10.0.0.0/8 } }, cost: 3, limit: api, key: client }",
            "  - name: b",
            "    only_if:",
            "      path: /b",
            "  - name: c",
            "    key: client",
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
        let text = format!("{text}  - {{ name: next, limit: shown }}\n");
        let lines = lines(&text);
        assert!(!lines.iter().any(|line| line.contains("s3cret")), "{text}{lines:#?}");
        assert_eq!(lines.last(), Some(&"  - { name: next, limit: shown }"), "{text}");
    }
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
            let lines = lines(text);
            assert!(!lines.iter().any(|line| line.contains("s3cret")), "{lines:#?}");
        }
    }
    assert_eq!(
        lines("&p policies: { a: 1 }\n&r \"rules\":\n- name: a"),
        ["&p policies: { a: 1 }", "&r \"rules\":", "- name: a"]
    );
    assert_eq!(lines("  rules: s3cret"), Vec::<&str>::new(), "nobody knows where it stands");
}
