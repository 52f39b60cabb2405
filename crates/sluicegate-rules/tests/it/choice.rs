//! Which rules apply: found by an index, and the same as if each rule were looked at by itself; and why the others do not.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use http::{Method, Request};
use proptest::prelude::*;
use sluicegate_core::MemoryStore;
use sluicegate_rules::{Explained, Rules, RulesFile, Section, Variables};
use sluicegate_tower::key::PeerAddr;

fn rules(text: &str) -> Rules {
    let file = RulesFile::parse("rules.yaml", text, &Variables::none());
    let file = file.unwrap_or_else(|error| panic!("{error}"));
    Rules::new(MemoryStore::builder().table_size(1).build().expect("it is possible"), file)
        .expect("memory keeps all")
}

fn explained(rules: &Rules, request: &Request<()>) -> Explained {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("it starts");
    runtime.block_on(rules.explain(request))
}

/// The names of the rules that apply.
fn applying(explained: &Explained) -> Vec<&str> {
    explained.rules.iter().filter(|rule| rule.why_not.is_none()).map(|rule| &*rule.name).collect()
}

const REASONS: &str = "
version: 1
policies:
  a: { quota: 10/min, table_size: 1 }
  b: { quota: 10/min, table_size: 1 }
tiers:
  plan: { by: header(x-plan), tiers: { free: a, pro: b, big: unlimited }, default_tier: free }
deny:
  - { name: banned, only_if: { client: [192.0.2.0/24, 2001:db8::/32] } }
exempt:
  - { name: open, only_if: { path: [/health, \"/assets/{*file}\"] } }
rules:
  - { name: post, only_if: { method: [POST, PUT] }, limit: a, share: 1/2, key: everybody }
  - { name: path, only_if: { path: /login }, limit: a, share: 1/2, key: everybody }
  - { name: host, only_if: { host: shop.example }, limit: a, share: 1/2, key: everybody }
  - { name: header, only_if: { header: { x-secret: s3cret } }, limit: a, share: 1/2, key: everybody }
  - { name: query, only_if: { query: { v: \"2\" } }, limit: a, share: 1/2, key: everybody }
  - { name: other, only_if: { not: { path: \"/x/{id}\" } }, limit: a, share: 1/2, key: everybody }
  - { name: tier, only_if: { tier: { plan: [pro, big] } }, limit: a, share: 1/2, key: everybody }
  - { name: first, group: g, only_if: { path: \"/x/{id}\" }, limit: [a, b], key: everybody }
  - { name: rest, group: g, limit: b, key: everybody }
";

fn request(method: Method, uri: &str, peer: [u8; 4], headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).expect("it is a request");
    request.extensions_mut().insert(PeerAddr(SocketAddr::new(IpAddr::from(peer), 1)));
    request
}

#[test]
fn each_rule_that_does_not_apply_says_which_condition_failed_and_on_what_value() {
    let rules = rules(REASONS);
    let asks =
        request(Method::GET, "/x/1?v=1", [203, 0, 113, 9], &[("host", "api.example:80"), ("x-secret", "no")]);
    let explained = explained(&rules, &asks);
    let why: Vec<_> =
        explained.rules.iter().map(|rule| (&*rule.name, rule.why_not.as_deref().unwrap_or(""))).collect();
    assert_eq!(
        why,
        [
            ("banned", "client 203.0.113.9 is not in 192.0.2.0/24 or 2001:db8::/32"),
            ("open", "path /x/1 does not match /health or /assets/{*file}"),
            ("post", "method is GET, the rule wants POST or PUT"),
            ("path", "path /x/1 does not match /login"),
            ("host", "host is api.example, the rule wants shop.example"),
            ("header", "header x-secret is not what the rule wants"),
            ("query", "query parameter v is not what the rule wants"),
            ("other", "all of its \"not\" holds"),
            ("tier", "tier of plan is free, the rule wants pro or big"),
            ("first", ""),
            ("rest", "of group g, rule first applies"),
        ]
    );
    assert!(!explained.to_string().contains("s3cret"), "{explained}");
    let first = explained.rules.iter().find(|rule| rule.name == "first").expect("it is there");
    let asked: Vec<_> =
        first.limits.iter().flat_map(|limit| &limit.asks).map(|asks| asks.policy.name()).collect();
    assert_eq!((asked, first.group.as_deref(), first.section), (vec!["a", "b"], Some("g"), Section::Rules));
}

#[test]
fn who_is_exempt_or_denied_is_told_so_by_name() {
    let rules = rules(REASONS);
    let look = |uri, peer| explained(&rules, &request(Method::GET, uri, peer, &[]));
    let exempt = look("/health", [203, 0, 113, 9]);
    assert_eq!(applying(&exempt), ["open"]);
    assert_eq!(exempt.rules[2].why_not.as_deref(), Some("the request is exempt"));
    let denied = look("/health", [192, 0, 2, 9]);
    assert_eq!(applying(&denied), ["banned"]);
    assert!(denied.to_string().starts_with("is refused with 403"), "{denied}");
    for (path, why) in [
        ("/assets/../x", "path /x does not match /health or /assets/{*file}"),
        ("/assets/./x", "a path with \".\" or \"..\" is never exempt"),
        ("/health;x", "path /health;x does not match /health or /assets/{*file}"),
    ] {
        assert_eq!(look(path, [203, 0, 113, 9]).rules[1].why_not.as_deref(), Some(why), "{path}");
    }
}

const WORDS: [&str; 3] = ["a", "b", "c"];

/// A condition, written twice: in a file, and as a function.
#[derive(Clone, Debug, Default)]
struct Only {
    paths: Vec<Vec<usize>>,
    methods: Vec<usize>,
    hosts: Vec<usize>,
    headers: Vec<(usize, usize)>,
    query: Vec<(usize, usize)>,
    client: Option<u8>,
    /// By the first field `x-a`: `a`, and for all else the default `b`.
    tier: Option<usize>,
}

#[derive(Clone, Debug)]
struct Asked {
    path: Vec<usize>,
    method: usize,
    host: Option<usize>,
    headers: Vec<(usize, usize)>,
    query: Vec<(usize, usize)>,
    peer: u8,
}

const METHODS: [&str; 3] = ["GET", "POST", "PUT"];

fn pairs(pairs: &[(usize, usize)]) -> Vec<String> {
    let mut seen = Vec::new();
    let fresh = pairs.iter().filter(|(name, _)| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    fresh.map(|(name, value)| format!("x-{}: {}", WORDS[*name], WORDS[*value])).collect()
}

impl Only {
    /// `3` is a capture, and `4` takes the rest.
    fn path(pattern: &[usize]) -> String {
        let segment = |part: &usize| match part {
            3 => "/{id}".to_owned(),
            4 => "/{*rest}".to_owned(),
            word => format!("/{}", WORDS[*word]),
        };
        pattern.iter().map(segment).collect()
    }

    fn text(&self) -> String {
        let mut words = Vec::new();
        let list = |name: &str, all: Vec<String>| {
            (!all.is_empty()).then(|| {
                format!(
                    "{name}: [{}]",
                    all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ")
                )
            })
        };
        words.extend(list("path", self.paths.iter().map(|path| Self::path(path)).collect()));
        words.extend(list("method", self.methods.iter().map(|at| METHODS[*at].to_owned()).collect()));
        words.extend(list("host", self.hosts.iter().map(|at| WORDS[*at].to_owned()).collect()));
        let fields = |name: &str, all: &[(usize, usize)]| {
            (!all.is_empty()).then(|| format!("{name}: {{ {} }}", pairs(all).join(", ")))
        };
        words.extend(fields("header", &self.headers));
        words.extend(fields("query", &self.query));
        words.extend(self.client.map(|net| format!("client: [10.0.{net}.0/24]")));
        words.extend(self.tier.map(|tier| format!("tier: {{ plan: {} }}", WORDS[tier])));
        format!("{{ {} }}", words.join(", "))
    }

    fn is_empty(&self) -> bool {
        self.text() == "{  }"
    }

    fn matches(pattern: &[usize], path: &[usize]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            ([4, ..], path) => !path.is_empty(),
            ([3, pattern @ ..], [_, path @ ..]) => Self::matches(pattern, path),
            ([one, pattern @ ..], [other, path @ ..]) => one == other && Self::matches(pattern, path),
            _ => false,
        }
    }

    fn holds(&self, asked: &Asked) -> bool {
        let has = |wanted: &[(usize, usize)], there: &[(usize, usize)]| {
            pairs(wanted).iter().all(|pair| {
                there.iter().any(|(name, value)| format!("x-{}: {}", WORDS[*name], WORDS[*value]) == *pair)
            })
        };
        (self.paths.is_empty() || self.paths.iter().any(|pattern| Self::matches(pattern, &asked.path)))
            && (self.methods.is_empty() || self.methods.contains(&asked.method))
            && (self.hosts.is_empty() || asked.host.is_some_and(|host| self.hosts.contains(&host)))
            && has(&self.headers, &asked.headers)
            && has(&self.query, &asked.query)
            && self.client.is_none_or(|net| net == asked.peer)
            && self.tier.is_none_or(|tier| tier == asked.tier())
    }
}

fn only() -> impl Strategy<Value = Only> {
    let pair = || prop::collection::vec((0..3_usize, 0..3_usize), 0..2);
    let path =
        (prop::collection::vec(0..4_usize, 1..3), prop::bool::weighted(0.2)).prop_map(|(mut path, rest)| {
            path.extend(rest.then_some(4));
            path
        });
    (
        prop::collection::vec(path, 0..3),
        prop::collection::vec(0..3_usize, 0..2),
        prop::collection::vec(0..3_usize, 0..2),
        pair(),
        pair(),
        prop::option::weighted(0.2, 0..3_u8),
        prop::option::weighted(0.3, 0..2_usize),
    )
        .prop_map(|(paths, methods, hosts, headers, query, client, tier)| Only {
            paths,
            methods,
            hosts,
            headers,
            query,
            client,
            tier,
        })
}

fn asked() -> impl Strategy<Value = Asked> {
    let pair = || prop::collection::vec((0..3_usize, 0..3_usize), 0..3);
    (
        prop::collection::vec(0..3_usize, 1..4),
        0..3_usize,
        prop::option::of(0..3_usize),
        pair(),
        pair(),
        0..3_u8,
    )
        .prop_map(|(path, method, host, headers, query, peer)| Asked {
            path,
            method,
            host,
            headers,
            query,
            peer,
        })
}

impl Asked {
    fn tier(&self) -> usize {
        let said = self.headers.iter().find(|(name, _)| *name == 0).map(|(_, value)| *value);
        said.filter(|said| *said < 2).unwrap_or(1)
    }

    fn request(&self) -> Request<()> {
        let query: Vec<_> =
            self.query.iter().map(|(name, value)| format!("x-{}={}", WORDS[*name], WORDS[*value])).collect();
        let uri = format!("{}?{}", Only::path(&self.path), query.join("&"));
        let method = METHODS[self.method].parse().expect("it is a method");
        let mut request = request(method, &uri, [10, 0, self.peer, 1], &[]);
        for (name, value) in &self.headers {
            let name = http::HeaderName::try_from(format!("x-{}", WORDS[*name])).expect("it is a name");
            request.headers_mut().append(name, WORDS[*value].parse().expect("it is a value"));
        }
        if let Some(host) = self.host {
            request.headers_mut().insert("host", WORDS[host].parse().expect("it is a value"));
        }
        request
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_rules_that_apply_are_those_whose_conditions_hold_one_by_one(
        given in prop::collection::vec((only(), prop::option::weighted(0.3, only()), prop::option::of(0..2_usize)), 1..14),
        requests in prop::collection::vec(asked(), 8),
    ) {
        let mut text = "version: 1\npolicies:\n  a: { quota: 100/min, table_size: 1 }\ntiers:\n  plan: { by: header(x-a), tiers: { a: a, b: unlimited }, default_tier: b }\nrules:\n".to_owned();
        for (at, (only, not, group)) in given.iter().enumerate() {
            let not = not.as_ref().filter(|not| !not.is_empty());
            let inner = only.text();
            let condition = match (only.is_empty(), not) {
                (true, None) => String::new(),
                (true, Some(not)) => format!("only_if: {{ not: {} }}, ", not.text()),
                (false, None) => format!("only_if: {inner}, "),
                (false, Some(not)) => format!("only_if: {}, not: {} }}, ", &inner[..inner.len() - 2], not.text()),
            };
            let group = group.map_or(String::new(), |group| format!("group: g{group}, "));
            writeln!(text, "  - {{ name: r{at}, {group}{condition}limit: a, share: 1/10, key: everybody }}").expect("it is a text");
        }
        let rules = rules(&text);
        for asked in requests {
            let mut met = Vec::new();
            let mut expected = Vec::new();
            for (at, (only, not, group)) in given.iter().enumerate() {
                let not = not.as_ref().filter(|not| !not.is_empty());
                let applies = only.holds(&asked) && !not.is_some_and(|not| not.holds(&asked));
                if applies && !group.is_some_and(|group| met.contains(&group)) {
                    met.extend(*group);
                    expected.push(format!("r{at}"));
                }
            }
            let explained = explained(&rules, &asked.request());
            prop_assert_eq!(applying(&explained), expected.iter().map(|name| &**name).collect::<Vec<_>>(), "{}\n{:?}", text, asked);
            // The code that decides says the same.
            let asks = explained.rules.iter().filter(|rule| rule.limits.iter().any(|limit| limit.asks.is_ok()));
            prop_assert_eq!(asks.count(), expected.len());
        }
    }
}

/// Such values were once compared as they are, and never met.
#[test]
fn values_are_lists_and_patterns_and_may_be_required_or_forbidden() {
    let text = "
version: 1
policies:
  a: { quota: 10/min, table_size: 1 }
rules:
  - { name: bots, only_if: { header: { user-agent: [\"*bot*\", curl] } }, limit: a, share: 1/9, key: everybody }
  - { name: listed, only_if: { header: { x-plan: [free, pro] } }, limit: a, share: 1/9, key: everybody }
  - { name: named, only_if: { header: { x-user: \"*\" } }, limit: a, share: 1/9, key: everybody }
  - { name: required, only_if: { query: { token: { present: true } } }, limit: a, share: 1/9, key: everybody }
  - { name: nameless, only_if: { header: { x-user: { present: false } }, query: { token: { present: false } } }, limit: a, share: 1/9, key: everybody }
  - { name: paged, only_if: { query: { page: [1, 2, \"9*\"] } }, limit: a, share: 1/9, key: everybody }
";
    let rules = rules(text);
    for (target, headers, expected) in [
        ("/", &[][..], &["nameless"][..]),
        ("/", &[("user-agent", "some bot 1.0")], &["bots", "nameless"]),
        ("/", &[("user-agent", "curl")], &["bots", "nameless"]),
        ("/", &[("user-agent", "curl/8")], &["nameless"]),
        ("/", &[("user-agent", "none"), ("user-agent", "bot")], &["bots", "nameless"]),
        ("/", &[("x-plan", "pro")], &["listed", "nameless"]),
        ("/", &[("x-plan", "pr"), ("x-user", "")], &["named"]),
        ("/?token=", &[], &["required"]),
        ("/?token&page=2", &[], &["required", "paged"]),
        ("/?p%61ge=%39%39", &[], &["nameless", "paged"]),
    ] {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("it is a request");
        assert_eq!(applying(&explained(&rules, &request)), expected, "{target} {headers:?}");
    }
}
