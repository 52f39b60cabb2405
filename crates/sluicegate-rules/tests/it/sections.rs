//! The sections about denials, requests under way and the store: what they do to requests.

use http::{Request, StatusCode};
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tower::in_flight::PermitBody;
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::limits::WouldBe;
use sluicegate_tower::settle::SettlingBody;

use crate::support::{Folder, error, parse, passed, request, rules};

#[tokio::test]
async fn a_denial_has_its_status_and_the_first_that_matches_counts() {
    let rules = rules(
        "
version: 1
policies: { a: { quota: 1/min } }
deny:
  - { name: gone, only_if: { path: /old }, status: 410 }
  - { name: bot, only_if: { header: { user-agent: bot } }, status: 451 }
  - { name: trace, only_if: { path: /trace } }
rules: [{ name: all, limit: a, key: everybody }]
",
    );
    for (path, agent, status) in [
        ("/old", "bot", StatusCode::GONE),
        ("/x", "bot", StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS),
        ("/trace", "me", StatusCode::FORBIDDEN),
    ] {
        let asked = request(path, &[("user-agent", agent)]);
        let explained = rules.limits().explain(&asked).await;
        assert!(
            matches!(explained.outcome, WouldBe::Refused { status: found, .. } if found == status),
            "{explained}"
        );
    }
    assert_eq!(passed(&rules, &[]).await, 1);
}

const AT_ONCE: &str = "
version: 1
policies:
  free: { quota: 100/min }
in_flight:
  reports: { permits: 2, on_exceeded: wait 10s }
  uploads: { permits: 1 }
deny:
  - { name: banned, only_if: { header: { x-user: eve } }, status: 410 }
exempt:
  - { name: open, only_if: { header: { x-user: probe } } }
rules:
  - { name: report, group: g, only_if: { path: /report }, limit: free, key: header(x-user), in_flight: reports }
  - { name: upload, group: g, limit: free, key: header(x-user), in_flight: uploads }
";

pub(crate) type Answer = http::Response<PermitBody<SettlingBody<http_body_util::Full<bytes::Bytes>>>>;

/// Sends a request through the layer; it is under way for as long as its response is there.
pub(crate) async fn send(rules: &Rules, path: &str, user: &str) -> Answer {
    let service = tower::service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::default()))
    });
    let layered = tower::Layer::layer(&rules.layer(), service);
    let answer = tower::ServiceExt::oneshot(layered, request(path, &[("x-user", user)])).await;
    answer.expect("the service does not fail")
}

#[tokio::test(start_paused = true)]
async fn a_rule_bounds_how_much_of_a_key_is_under_way_and_waits_as_it_says() {
    let short = rules(&AT_ONCE.replace("uploads: { permits: 1 }", "uploads: 1"));
    let upload = send(&short, "/x", "ada").await;
    assert_eq!((upload.status().as_u16(), send(&short, "/x", "ada").await.status().as_u16()), (200, 429));
    let rules = rules(AT_ONCE);
    let upload = send(&rules, "/x", "ada").await;
    assert_eq!(upload.status(), 200);
    assert_eq!(send(&rules, "/x", "ada").await.status(), 429);
    assert_eq!(send(&rules, "/x", "bob").await.status(), 200);
    // Of a group only the first rule that matches counts.
    let held = [send(&rules, "/report", "ada").await, send(&rules, "/report", "ada").await];
    assert!(held.iter().all(|answer| answer.status() == 200));
    let began = tokio::time::Instant::now();
    assert_eq!(send(&rules, "/report", "ada").await.status(), 429);
    assert_eq!(began.elapsed().as_secs(), 10);
    drop(held);
    assert_eq!(send(&rules, "/report", "ada").await.status(), 200);
}

/// They were once those of the draft, whatever the file said.
#[tokio::test]
async fn the_fields_of_a_file_are_those_of_its_permits_too_and_change_with_it() {
    let rules = rules(AT_ONCE);
    let tells = |answer: &Answer| {
        let field = answer.headers().get("ratelimit-policy").and_then(|field| field.to_str().ok());
        field.is_some_and(|field| field.contains("\"uploads\";q=1;qu=\"concurrent-requests\""))
    };
    for (words, on_pass, on_refusal) in [
        ("", false, true),
        ("headers: all", true, true),
        ("headers: legacy", false, false),
        ("headers: ietf", true, true),
        ("headers: spring", false, false),
        ("headers: all-on-refusal", false, true),
        ("headers: none", false, false),
    ] {
        let text = AT_ONCE.replace("version: 1", &format!("version: 1\n{words}"));
        rules.replace(parse(&text)).expect("memory keeps it");
        let passed = send(&rules, "/x", "ada").await;
        let refused = send(&rules, "/x", "ada").await;
        assert_eq!((passed.status().as_u16(), refused.status().as_u16()), (200, 429), "{words}");
        assert_eq!((tells(&passed), tells(&refused)), (on_pass, on_refusal), "{words}");
    }
}

#[tokio::test]
async fn an_explanation_says_which_permit_a_request_needs_and_under_which_key() {
    let rules = rules(&AT_ONCE.replace("in_flight: uploads", "on_missing_key: 401, in_flight: uploads"));
    let look = async |path: &str, user: &[(&str, &str)]| rules.explain(&request(path, user)).await;
    let held = send(&rules, "/report", "ada").await;
    let report = look("/report", &[("x-user", "ada")]).await;
    let rule = report.rules.iter().find(|rule| rule.name == "report").expect("it is there");
    let key = rule.limits[0].asks.as_ref().expect("it applies").key.shown();
    let line = format!("\n  report: takes a permit of reports for {key}; 1 of 2 left, waits up to 10s");
    let report = report.to_string();
    assert!(report.contains(&line) && !report.contains("permit of uploads"), "{report}");
    let line = format!("\n  upload: takes a permit of uploads for {key}; 1 of 1 left");
    let upload = look("/x", &[("x-user", "ada")]).await.to_string();
    assert!(upload.ends_with(&line) && !upload.contains("permit of reports"), "{upload}");
    let nobody = look("/x", &[]).await.to_string();
    let refused = "\n  upload: takes no permit of uploads: it is refused with 401, because";
    assert!(nobody.contains(refused), "{nobody}");
    for user in ["eve", "probe"] {
        let passed_by = look("/x", &[("x-user", user)]).await.to_string();
        assert!(!passed_by.contains("permit"), "{passed_by}");
    }
    // It says so of the file that is in force.
    drop(held);
    rules.replace(parse(&AT_ONCE.replace("permits: 1", "permits: 3"))).expect("memory keeps it");
    let upload = look("/x", &[("x-user", "ada")]).await.to_string();
    assert!(upload.ends_with("; 3 of 3 left"), "{upload}");
}

#[tokio::test]
async fn requests_that_are_denied_or_exempt_take_no_permit() {
    let rules = rules(AT_ONCE);
    for (user, status) in [("eve", 410), ("probe", 200)] {
        let answers = [send(&rules, "/x", user).await, send(&rules, "/x", user).await];
        assert!(answers.iter().all(|answer| answer.status() == status && !answer.body().is_holding()));
    }
}

#[tokio::test]
async fn shared_permits_are_explained_as_such_and_a_reload_of_their_number_keeps_what_is_out() {
    let shared = AT_ONCE.replace("permits: 1", "permits: 1, shared: true, lease: 30s, on_outage: deny");
    let rules = rules(&shared);
    let held = send(&rules, "/x", "ada").await;
    assert_eq!(send(&rules, "/x", "ada").await.status(), 429);
    let explained = async || rules.explain(&request("/x", &[("x-user", "ada")])).await.to_string();
    assert!(explained().await.ends_with("; 0 of 1 left for all instances"), "{}", explained().await);
    rules.replace(parse(&shared.replace("permits: 1", "permits: 2"))).expect("memory keeps it");
    assert!(explained().await.ends_with("; 1 of 2 left for all instances"), "{}", explained().await);
    for (from, to) in [
        ("on_outage: deny", "on_outage: allow"),
        ("30s", "1min"),
        (", shared: true, lease: 30s, on_outage: deny", ""),
    ] {
        rules.replace(parse(&shared.replace(from, to))).expect("memory keeps it");
        assert!(explained().await.contains("; 1 of 1 left"), "another way to share begins anew: {to}");
    }
    drop(held);
}

#[test]
fn what_is_wrong_with_shared_permits_is_told() {
    for (to, expected) in [
        ("permits: 1, shared: true, lease: soon", "\"soon\""),
        ("permits: 1, shared: true, lease: 500ms", "cannot have a lease of 500ms: use 1 s to 1 h"),
        ("permits: 1, shared: true, on_outage: wait", "\"wait\""),
        ("permits: 1, shared: true, on_outage: 100/s", "100/s cannot stand for it"),
        (
            "permits: 1, lease: 30s",
            "\"lease\": it is for permits that instances share: write \"shared: true\"",
        ),
        (
            "permits: 1, shared: false, on_outage: deny",
            "\"on_outage\": it is for permits that instances share",
        ),
        ("adaptive: gradient, shared: true", "\"shared\": each instance adapts by itself: use \"permits\""),
    ] {
        let text = AT_ONCE.replace("permits: 1", to);
        let wrong = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(wrong.contains(expected), "{to}: {wrong}");
    }
}

#[tokio::test]
async fn permits_that_are_out_count_after_a_reload() {
    let rules = rules(AT_ONCE);
    let held = send(&rules, "/x", "ada").await;
    rules.replace(parse(&AT_ONCE.replace("100/min", "90/min"))).expect("memory keeps it");
    assert_eq!(send(&rules, "/x", "ada").await.status(), 429);
    rules.replace(parse(&AT_ONCE.replace("permits: 1", "permits: 2"))).expect("memory keeps it");
    let second = send(&rules, "/x", "ada").await;
    assert_eq!(second.status(), 200);
    assert_eq!(send(&rules, "/x", "ada").await.status(), 429);
    drop((held, second));
    let without = AT_ONCE.replace(", in_flight: uploads", "").replace("  uploads: { permits: 1 }\n", "");
    rules.replace(parse(&without)).expect("memory keeps it");
    assert!(!send(&rules, "/x", "ada").await.body().is_holding());
}

#[test]
fn a_number_at_once_that_nobody_names_or_that_is_none_is_told() {
    let wrong = |text: &str| error(RulesFile::parse("rules.yaml", text, &Variables::none()));
    for (from, to, expected) in [
        ("permits: 1 }", "permits: 0 }", "rules.yaml:7:23: error: \"0\" is not a number of permits"),
        ("wait 10s", "wait", "does not say how long a request waits"),
        (
            "in_flight: uploads }",
            "in_flight: upload }",
            "there is no \"upload\" under \"in_flight\": did you mean \"uploads\"?",
        ),
        ("uploads: { permits: 1 }", "uploads: 0", "rules.yaml:7:12: error: \"0\" is not a number of permits"),
        (
            "uploads: { permits: 1 }",
            "uploads: [1]",
            "a number of permits, or { permits, .. }, or { adaptive, .. }",
        ),
        ("  uploads:", "  free:", "\"free\" is a policy already"),
        ("  uploads:", "  Uploads:", "\"Uploads\""),
    ] {
        let wrong = wrong(&AT_ONCE.replace(from, to));
        assert!(wrong.contains(expected), "{to}: {wrong}");
    }
    let unused = parse(&AT_ONCE.replace(", in_flight: uploads", ""));
    let warnings: Vec<_> = unused.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("\"uploads\" limits nothing: no rule names it")));
}

const PLAIN: &str =
    "version: 1\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: everybody }\n";

/// A file that says where it is counted.
fn on(store: &str) -> String {
    format!("version: 1\nstore: {store}\n{}", PLAIN.trim_start_matches("version: 1\n"))
}

#[tokio::test]
async fn a_file_that_names_its_store_needs_none_from_code() {
    let folder = Folder::new();
    let path = folder.0.join("rules.yaml");
    std::fs::write(&path, on("{ memory: 1k keys }")).expect("it can be written");
    let rules = Rules::from_file(&path, Variables::none()).expect("it is good");
    // Of one quota with its burst, however the clock goes on.
    assert!(passed(&rules, &[]).await >= 5);
    let code = Policy::gcra("code", "1/min").on(rules.store().clone()).expect("memory keeps it");
    assert!(code.check("ada").await.expect("memory answers").is_allowed());

    std::fs::write(&path, on("{ memory: 2k keys }").replace("5/min", "9/min")).expect("it can be written");
    let changes = rules.reload().expect("it is good").expect("it is another text");
    assert_eq!(
        changes.to_string(),
        "changed a 5/min -> 9/min, what was spent counts; needs a restart: store"
    );
    // It does so until there was one.
    std::fs::write(&path, PLAIN).expect("it can be written");
    let changes = rules.reload().expect("it is good").expect("it is another text");
    assert_eq!(changes.needs_restart, ["store"]);
    std::fs::write(&path, on("{ memory: 1000 }")).expect("it can be written");
    let changes = rules.reload().expect("it is good").expect("it is another text");
    assert!(changes.needs_restart.is_empty(), "{changes}");
}

#[tokio::test]
async fn two_stores_are_one_too_many_and_none_is_one_too_few() {
    let folder = Folder::new();
    let path = folder.0.join("rules.yaml");
    std::fs::write(&path, PLAIN).expect("it can be written");
    let none = error(Rules::from_file(&path, Variables::none()));
    assert!(
        none.contains("it names no store: add the section \"store\", as store: { redis: redis://host:6379 }"),
        "{none}"
    );
    let rules = Rules::open(MemoryStore::new(), &path, Variables::none()).expect("code gives one");

    std::fs::write(&path, on("{ memory: 1k keys }")).expect("it can be written");
    for two in [error(Rules::open(MemoryStore::new(), &path, Variables::none())), error(rules.reload())] {
        assert!(
            two.contains("leave the section \"store\" out, or open the file by `Rules::from_file`"),
            "{two}"
        );
    }
    let file = RulesFile::read(&path, &Variables::none()).expect("it is good");
    assert!(Rules::new(MemoryStore::new(), file.without_store()).is_ok(), "as tools do");
}

#[test]
fn no_value_of_the_store_is_shown() {
    for (store, place, expected) in [
        ("{ redis: http://ada:hunter2@host }", "2:17", "its scheme is not one of redis"),
        ("{ redis: redis://ada:hunter2@host/x }", "2:17", "this is not the URL of a Redis"),
        ("{ redis: redis://host, deadline: hunter2 }", "2:41", "write a time from 1ms to 1min"),
        ("{ redis: redis://host, deadline: 0s }", "2:41", "write a time from 1ms to 1min"),
        ("{ redis: redis://host, deadline: 1h }", "2:41", "write a time from 1ms to 1min"),
        ("{ redis: redis://host, replicas: 0 }", "2:41", "a whole number from 1 to 100000"),
        ("{ redis: redis://host, memory: 1k }", "2:8", "either \"redis\", with its URL, or \"memory\""),
        ("{ memory: hunter2 }", "2:18", "this is not a number of keys"),
        ("{ memory: 0 }", "2:18", "this is not a number of keys"),
        ("{ memory: 1k, replicas: 2 }", "2:32", "a store in memory has no replicas"),
        ("redis://ada:hunter2@host", "2:8", "another shape than"),
        ("{ redis: [hunter2] }", "2:17", "another shape than"),
        ("{ redis: ${REDIS_URL} }", "2:18", "a variable in braces is not put in"),
        ("{ redis: redis://host, timeout: hunter2 }", "2:31", "\"timeout\" is not known here"),
    ] {
        let error = error(RulesFile::parse("rules.yaml", &on(store), &Variables::none()));
        assert!(error.starts_with(&format!("rules.yaml:{place}: error: ")), "{store}: {error}");
        assert!(error.contains(expected), "{store}: {error}");
        assert!(!error.contains("hunter2") && !error.contains(" | "), "{error}");
    }
    let file = parse(&on("{ redis: redis://ada:hunter2@host }"));
    assert!(!format!("{file:?}").contains("hunter2"));
    // Only the service refuses what is not set; a tool looks at the rest.
    let named = on("\n  redis: ${REDIS_URL}");
    let unset = Variables::none().or_placeholders();
    RulesFile::parse("rules.yaml", &named, &unset).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        error(RulesFile::parse("rules.yaml", &named, &Variables::none()))
            .contains("\"REDIS_URL\" is not set")
    );
}

#[cfg(feature = "redis")]
#[test]
fn a_log_that_is_too_long_for_the_redis_of_the_file_is_told_before_a_service_starts() {
    let log = |algorithm: &str| {
        on("{ redis: redis://127.0.0.1:1 }")
            .replace("quota: 5/min", &format!("algorithm: {algorithm}, quota: 2001/d"))
    };
    let long = error(RulesFile::parse("rules.yaml", &log("sliding-log"), &Variables::none()));
    assert!(
        long.starts_with(
            "rules.yaml:6:25: error: policy \"a\": a sliding log on Redis has at most 2000 entries, not 2001"
        ),
        "{long}"
    );
    assert!(long.contains("; a resolution is written algorithm: sliding-log-in-20\n"), "{long}");
    parse(&log("sliding-log-in-20"));
    parse(&log("sliding-log").replace("limit: a,", "limit: a, share: 1/2,"));
    // Without that store it is as long as the store of the program allows.
    parse(&PLAIN.replace("quota: 5/min", "algorithm: sliding-log, quota: 2001/d"));
}

#[test]
fn a_policy_with_room_for_many_keys_is_checked_without_making_the_room() {
    // 48 GB.
    parse(&PLAIN.replace("quota: 5/min", "quota: 5/min, table_size: 2_000_000_000"));
    let many = PLAIN.replace("quota: 5/min", "quota: 5/min, table_size: 4000000000");
    let many = error(RulesFile::parse("rules.yaml", &many, &Variables::none()));
    assert!(many.starts_with("rules.yaml:3:34: error: \"4000000000\" is not a number of keys: use a whole number from 1 to 2147483648"), "{many}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_redis_is_opened_with_a_fallback_and_the_service_starts_while_it_is_away() {
    let folder = Folder::new();
    let path = folder.0.join("rules.yaml");
    let text = on("{ redis: redis://127.0.0.1:1, deadline: 20ms, replicas: 5 }");
    std::fs::write(&path, text).expect("it can be written");
    let rules = Rules::from_file(&path, Variables::none()).expect("it is good");
    // On its own this instance has a fifth.
    assert_eq!(passed(&rules, &[]).await, 1);
}

#[cfg(not(feature = "redis"))]
#[test]
fn a_program_without_redis_says_so_when_the_store_is_opened() {
    let file = parse(&on("{ redis: redis://127.0.0.1:1 }"));
    let error = file.open_store().err().expect("there is no Redis in it").to_string();
    assert!(error.contains("enable the feature `redis`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_permit_keeps_the_limits_that_it_began_with() {
    const TEXT: &str = "
version: 1
headers: ietf
policies: { old: { quota: 100/min } }
in_flight: { one: { permits: 1, on_exceeded: wait 10s } }
rules: [{ name: all, limit: old, key: everybody, in_flight: one }]
";
    let rules = rules(TEXT);
    let fields = |answer: &Answer| {
        let all = answer.headers().get_all("ratelimit-policy").iter();
        all.map(|line| line.to_str().expect("text").to_owned()).collect::<Vec<_>>().join(", ")
    };
    let first = send(&rules, "/x", "ada").await;
    let waits = tokio::spawn({
        let rules = rules.clone();
        async move { send(&rules, "/x", "ada").await }
    });
    tokio::task::yield_now().await;
    for name in ["newer", "newest"] {
        let text = TEXT.replace("old", name);
        rules.replace(parse(&text)).expect("memory keeps all");
    }
    drop(first);
    let waited = waits.await.expect("no request panics");
    assert_eq!(waited.status(), 200);
    assert!(fields(&waited).contains("\"old\""), "{}", fields(&waited));
    drop(waited);
    assert!(fields(&send(&rules, "/x", "ada").await).contains("\"newest\""));
    // Without a number at once there is nothing to keep them for.
    rules.replace(parse(&TEXT.replace(", in_flight: one", ""))).expect("memory keeps all");
    assert!(fields(&send(&rules, "/x", "ada").await).contains("\"old\""));
}

#[tokio::test]
async fn a_thousand_rules_with_numbers_at_once_are_found_as_one_is() {
    use std::fmt::Write as _;
    let mut text = "version: 1\npolicies: { a: { quota: 1000/min } }\nin_flight: { one: { permits: 1 } }\ndeny: [{ name: no, only_if: { path: /p7 } }]\nexempt: [{ name: open, only_if: { path: /p8 } }]\nrules:\n".to_owned();
    for rule in 0..1_000 {
        writeln!(
            text,
            "  - {{ name: r{rule}, group: g, only_if: {{ path: /p{rule} }}, limit: a, key: header(x-user), in_flight: one }}"
        )
        .expect("a text can be written to");
    }
    let rules = rules(&text);
    let held = send(&rules, "/p999", "ada").await;
    for (path, user, status) in [
        ("/p0", "ada", 429),
        ("/p0", "bob", 200),
        ("/none", "ada", 200),
        ("/p7", "ada", 403),
        ("/p8", "ada", 200),
    ] {
        assert_eq!(send(&rules, path, user).await.status(), status, "{path} {user}");
    }
    drop(held);
    assert_eq!(send(&rules, "/p0", "ada").await.status(), 200);
}

/// The key of a request from this peer by a file with these words; its limits are those of the client's key.
async fn key_of(clients: &str, key: &str, peer: &str) -> String {
    let text =
        PLAIN.replace("policies:", &format!("clients: {clients}\npolicies:")).replace("everybody", key);
    let mut asked = request("/", &[]);
    asked.extensions_mut().insert(PeerAddr(peer.parse().expect("it is an address")));
    let explained = rules(&text).explain(&asked).await;
    explained.rules[0].limits[0].asks.clone().expect("it has a key").key.shown().to_string()
}

#[tokio::test]
async fn a_file_says_how_much_of_an_ipv6_address_is_one_client_also_without_proxies() {
    let peer = "[2001:db8:1:2:3:4:5:6]:1";
    for (clients, key, shown) in [
        ("{ ipv6_prefix: 128 }", "client", "2001:db8:1:2:3:4:5:6"),
        ("{ ipv6_prefix: 128 }", "peer", "2001:db8:1:2:3:4:5:6"),
        ("{ ipv6_prefix: 56 }", "client", "2001:db8:1::"),
        ("{ ipv6_prefix: 128 }", "client(48)", "2001:db8:1::"),
        ("{ proxies: 10.0.0.0/8, ipv6_prefix: 56 }", "client(128)", "2001:db8:1:2:3:4:5:6"),
        ("{ nat64: false }", "client", "2001:db8:1:2::"),
    ] {
        assert_eq!(key_of(clients, key, peer).await, shown, "{clients} {key}");
    }
    for (clients, shown) in [
        ("{ nat64: true }", "198.51.100.7"),
        ("{ hops: 1, nat64: true }", "198.51.100.7"),
        ("{ hops: 1 }", "64:ff9b::"),
    ] {
        assert_eq!(key_of(clients, "client", "[64:ff9b::198.51.100.7]:1").await, shown, "{clients}");
    }
    let wrong = |text: String| error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
    let without = wrong(PLAIN.replace("policies:", "clients: { header: x-real-ip }\npolicies:"));
    assert!(without.contains("say either \"proxies\""), "{without}");
    let bits = wrong(PLAIN.replace("everybody", "client(129)"));
    assert!(bits.contains("\"129\" is not a number of bits: use a whole number from 1 to 128"), "{bits}");
}
