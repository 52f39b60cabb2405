//! Paths mean the same in a file and in code, whatever a client makes of them.

use http::StatusCode;
use sluicegate_core::{Key, MemoryStore, Policy};
use sluicegate_rules::Rules;
use sluicegate_tower::Limit;
use sluicegate_tower::limits::{Limits, PathReading, WouldBe};

use crate::support::{request, rules};

/// The result for a request with this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Denied,
    Exempt,
    Limited,
    Free,
}

async fn seen(limits: &Limits, path: &str) -> Seen {
    match limits.explain(&request(path, &[])).await.outcome {
        WouldBe::Refused { status: StatusCode::FORBIDDEN, .. } => Seen::Denied,
        WouldBe::Exempt => Seen::Exempt,
        WouldBe::Allowed => Seen::Limited,
        WouldBe::Unlimited => Seen::Free,
        other => panic!("{path}: {other}"),
    }
}

const PATTERNS: [&str; 9] = [
    "/",
    "/*",
    "/login",
    "/login/",
    "/files/*",
    "/files/{*rest}",
    "/users/{id}",
    "/users/{id}/posts",
    "/a b",
];

const PATHS: [&str; 40] = [
    "/",
    "//",
    "/login",
    "/login/",
    "/LOGIN",
    "/login;x=1",
    "/login/;x",
    "//login",
    "/%6cogin",
    "/login%2F",
    "/login%3Bx",
    "/x/../login",
    "/x/..;/login",
    "/x/%2e%2e/LOGIN/",
    "/login/.",
    "/x/..%2flogin",
    "/files",
    "/files/",
    "/files;x/y",
    "/FILES/x",
    "/files/a/b",
    "/files%2Fa",
    "/files/../x",
    "/files/./x",
    "/filesystem",
    "/users",
    "/users/",
    "/users/7",
    "/users/7/",
    "/users/a%2fb",
    "/users/7/posts",
    "/Users/7/Posts/",
    "/users//posts",
    "/users/7;v=2/posts",
    "/users/7/posts/9",
    "/a%20b",
    "/A%20B",
    "/a+b",
    "/x",
    "/X/",
];

fn in_code(reading: PathReading, section: &str, sense: &str, pattern: &str) -> Limits {
    let store = MemoryStore::builder().table_size(1).build().expect("it is possible");
    let limit = || {
        Limit::new(Policy::gcra("a", "1000/min").on(&store).expect("memory keeps it")).key(Key::from("all"))
    };
    let listed = reading.path_in([pattern]).expect("a good pattern");
    let unlisted = reading.path_not_in([pattern]).expect("a good pattern");
    let limits = match (section, sense) {
        ("deny", "in") => Limits::builder(limit()).deny(listed),
        ("deny", _) => Limits::builder(limit()).deny(unlisted),
        ("exempt", "in") => Limits::builder(limit()).exempt(listed),
        ("exempt", _) => Limits::builder(limit()).exempt(unlisted),
        (_, "in") => Limits::builder(limit().only_if(listed)),
        _ => Limits::builder(limit().only_if(unlisted)),
    };
    limits.build().expect("they fit together")
}

fn in_a_file(words: &str, section: &str, sense: &str, pattern: &str) -> Rules {
    let path = match sense {
        "in" => format!("path: {pattern:?}"),
        _ => format!("not: {{ path: {pattern:?} }}"),
    };
    let (door, condition) = match section {
        "rules" => (String::new(), format!("only_if: {{ {path} }},")),
        _ => (format!("{section}: [{{ name: door, only_if: {{ {path} }} }}]"), String::new()),
    };
    rules(&format!(
        "version: 1\npaths: {{ {words} }}\npolicies: {{ a: {{ quota: 1000/min, table_size: 1 }} }}\n{door}\nrules: [{{ name: all, {condition} limit: a, key: everybody }}]\n"
    ))
}

#[tokio::test]
async fn each_pattern_means_the_same_in_code_and_in_a_file_for_every_spelling_of_a_path() {
    let readings = [
        (PathReading::new(), ""),
        (PathReading::new().ignore_case().ignore_trailing_slash(), "case: ignore, trailing_slash: ignore"),
        (PathReading::new().keep_case().keep_trailing_slash(), "case: keep, trailing_slash: keep"),
        (PathReading::new().ignore_trailing_slash(), "trailing_slash: ignore"),
    ];
    for (reading, words) in readings {
        for section in ["deny", "exempt", "rules"] {
            for sense in ["in", "not in"] {
                for pattern in PATTERNS {
                    let code = in_code(reading, section, sense, pattern);
                    let file = in_a_file(words, section, sense, pattern).limits();
                    for path in PATHS {
                        let [code, file] = [seen(&code, path).await, seen(&file, path).await];
                        assert_eq!(code, file, "{section} {sense} {pattern} [{words}]: {path}");
                    }
                }
            }
        }
    }
}

/// They came past a limit and a denial: a server behind that cuts parameters off, or ignores case or a slash at the end, served them.
#[tokio::test]
async fn no_spelling_of_a_path_leads_past_a_denial_and_none_is_exempt_in_doubt() {
    let denied = in_a_file("", "deny", "in", "/internal/*").limits();
    let exempt = in_a_file("", "exempt", "in", "/internal/*").limits();
    let listed = in_a_file("", "deny", "not in", "/internal/*").limits();
    for (path, is_denied, is_exempt) in [
        ("/internal/x", true, true),
        ("/internal/", true, true),
        ("/internal/a/b;v=1", true, true),
        ("/internal/a%20b", true, true),
        ("/internal", true, false),
        ("/INTERNAL/x", true, false),
        ("/internal;x/y", true, false),
        ("/internal%3Bx/y", true, false),
        ("//internal/x", true, false),
        ("/%69nternal/x", true, false),
        ("/internal%2Fx", true, false),
        ("/internal%5Cx", true, false),
        ("/x/../internal/y", true, false),
        ("/x/..;a=b/INTERNAL/y", true, false),
        ("/internal/../x", true, false),
        ("/internals", false, false),
        ("/x/internal/y", false, false),
    ] {
        assert_eq!(seen(&denied, path).await == Seen::Denied, is_denied, "{path}");
        assert_eq!(seen(&exempt, path).await == Seen::Exempt, is_exempt, "{path}");
        // A list of what is allowed lets in what is surely on it.
        assert_eq!(seen(&listed, path).await != Seen::Denied, is_exempt, "{path}");
    }
}

#[tokio::test]
async fn a_limit_counts_the_spellings_that_the_file_says_are_one() {
    for (words, case, slash) in [
        ("", false, false),
        ("case: ignore", true, false),
        ("trailing_slash: ignore", false, true),
        ("case: ignore, trailing_slash: ignore", true, true),
        ("case: keep, trailing_slash: keep", false, false),
    ] {
        let limits = in_a_file(words, "rules", "in", "/login").limits();
        for (path, is_limited) in [
            ("/login", true),
            ("/login;x", true),
            ("//login", true),
            ("/x/../login", true),
            ("/LOGIN", case),
            ("/login/", slash),
            ("/Login;x/", case && slash),
            ("/logins", false),
        ] {
            assert_eq!(seen(&limits, path).await == Seen::Limited, is_limited, "{words}: {path}");
        }
    }
}
