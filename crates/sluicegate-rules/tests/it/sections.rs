//! The sections about keys, tiers, denials and the store: what they do to requests.

use std::path::PathBuf;

use http::{Request, StatusCode};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tower::limits::WouldBe;

const ADA: &str = "DIGEST";

fn parse(text: &str) -> RulesFile {
    RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"))
}

fn rules(text: &str) -> Rules {
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    Rules::new(&store, parse(text)).expect("memory keeps all")
}

fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("it is a request")
}

/// How many of a hundred requests pass.
async fn passed(rules: &Rules, headers: &[(&str, &str)]) -> usize {
    let mut passed = 0;
    for _ in 0..100 {
        passed += usize::from(rules.limits().decide(&request("/", headers)).await.is_ok());
    }
    passed
}

fn error(result: Result<impl std::fmt::Debug, sluicegate_rules::RulesError>) -> String {
    result.expect_err("it is wrong").to_string()
}

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

const KEYS: &str = "
version: 1
api_keys: { header: x-api-key, file: tests/it/api-keys.yaml }
policies:
  free: { quota: 2/min }
  pro: { quota: 5/min }
tiers:
  plan: { by: api_key, tiers: { free: free, pro: pro, enterprise: unlimited }, default_tier: free }
rules:
  - { name: all, limit: plan, key: [api_key, header(x-address)] }
";

#[tokio::test]
async fn a_listed_api_key_has_its_tier_and_one_that_is_not_counts_as_missing() {
    let rules = rules(KEYS);
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada")]).await, 5);
    assert_eq!(passed(&rules, &[("x-api-key", "k-bob")]).await, 100);
    // Inventing keys buys nothing: all of them are in the bucket of the address.
    assert_eq!(passed(&rules, &[("x-api-key", "k-1"), ("x-address", "here")]).await, 2);
    assert_eq!(passed(&rules, &[("x-api-key", "k-2"), ("x-address", "here")]).await, 0);
    let explained = rules.limits().explain(&request("/", &[("x-api-key", "k-ada")])).await.to_string();
    assert!(!explained.contains("k-ada"), "{explained}");
}

#[tokio::test]
async fn a_key_with_quotas_of_its_own_is_known_by_claim_field_address_or_digest() {
    let overrides = format!("overrides: {{ acme: 7/min, \"{ADA}\": 9/min, Ada@x.org: [8/min, 50/h] }}")
        .replace(ADA, ada_digest().as_str());
    let text = KEYS.replace("default_tier: free }", &format!("default_tier: free, {overrides} }}"));
    let rules = rules(&text);
    assert_eq!(passed(&rules, &[("x-address", "acme")]).await, 7);
    assert_eq!(passed(&rules, &[("x-address", "Ada@x.org")]).await, 8);
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada"), ("x-address", "acme")]).await, 9);
    assert_eq!(passed(&rules, &[("x-address", "other")]).await, 2);
    // The name that a client says of itself is no key of its own.
    assert_eq!(passed(&rules, &[("x-api-key", "acme"), ("x-address", "third")]).await, 2);
    // It can be changed at run time, and what was spent counts.
    let changes = rules.replace(parse(&text.replace("7/min", "10/min"))).expect("memory keeps it");
    assert!(
        changes.to_string().starts_with("changed plan.acme 7/min -> 10/min, what was spent"),
        "{changes}"
    );
    assert_eq!(passed(&rules, &[("x-address", "acme")]).await, 3);
}

fn ada_digest() -> String {
    let file = std::fs::read_to_string("tests/it/api-keys.yaml").expect("it is there");
    let line = file.lines().find(|line| line.ends_with(": pro")).expect("it lists her");
    line.trim_end_matches(": pro").to_owned()
}

#[tokio::test]
async fn nobody_chooses_the_tier_of_a_single_key_and_a_share_is_one_of_its_quotas_too() {
    let rules = rules(
        "
version: 1
policies: { free: { quota: 10/min } }
tiers:
  plan: { by: header(x-plan), tiers: { free: free }, default_tier: free, overrides: { acme: 50/min } }
rules:
  - { name: part, limit: plan, share: 1/5, key: header(x-user) }
",
    );
    assert_eq!(passed(&rules, &[("x-user", "acme")]).await, 10);
    assert_eq!(passed(&rules, &[("x-user", "eve"), ("x-plan", "key acme")]).await, 2);
    assert_eq!(passed(&rules, &[("x-user", "bob"), ("x-plan", "acme")]).await, 2);
}

#[test]
fn what_is_wrong_with_the_file_of_api_keys_is_told_without_what_is_in_it() {
    let folder = Folder::new();
    let digest = ada_digest();
    for (keys, expected) in [
        ("hunter2: pro\n".to_owned(), ":1:1: error: this is not the sha256 of a key"),
        (format!("{digest}: pro\n{digest}: free\n"), ":2:1: error: a key is there twice"),
        (format!("{digest}: pro\n{}: free\n", digest.to_uppercase()), ":2:1: error: a key is there twice"),
        (format!("{digest}: [hunter2]\n"), "error: this is no line of an API key"),
        ("hunter2\n".to_owned(), "error: this is no line of an API key"),
        (String::new(), "error: "),
    ] {
        std::fs::write(folder.0.join("api-keys.yaml"), &keys).expect("it can be written");
        std::fs::write(folder.0.join("rules.yaml"), KEYS.replace("tests/it/", ""))
            .expect("it can be written");
        let error = error(RulesFile::read(folder.0.join("rules.yaml"), &Variables::none()));
        assert!(error.contains(expected), "{keys}: {error}");
        assert!(!error.contains("hunter2") && !error.contains(&digest), "{error}");
        assert!(error.lines().all(|line| !line.starts_with(' ')), "{error}");
    }
    std::fs::remove_file(folder.0.join("api-keys.yaml")).expect("it is there");
    let missing = error(RulesFile::read(folder.0.join("rules.yaml"), &Variables::none()));
    assert!(missing.contains("rules.yaml:3:38: error: the file of API keys: it cannot be read"), "{missing}");
}

#[tokio::test]
async fn another_file_of_api_keys_takes_effect_with_a_reload() {
    let folder = Folder::new();
    let keys = folder.0.join("api-keys.yaml");
    std::fs::copy("tests/it/api-keys.yaml", &keys).expect("it can be written");
    std::fs::write(folder.0.join("rules.yaml"), KEYS.replace("tests/it/", "")).expect("it can be written");
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    let rules = Rules::open(&store, folder.0.join("rules.yaml"), Variables::none()).expect("it is good");
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada")]).await, 5);
    std::fs::write(&keys, format!("{}: enterprise\n", ada_digest())).expect("it can be written");
    assert!(rules.reload().expect("it is good").is_some());
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada")]).await, 100);
}

#[test]
fn a_tier_of_the_file_of_api_keys_that_nobody_knows_is_worth_a_warning() {
    let file = parse(&KEYS.replace("enterprise: unlimited", "gold: unlimited"));
    let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
    assert!(
        warnings[0].starts_with("rules.yaml:8:3: warning: the file of API keys names tier \"enterprise\""),
        "{warnings:?}"
    );
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

type Answer = http::Response<sluicegate_tower::in_flight::PermitBody<http_body_util::Full<bytes::Bytes>>>;

/// Sends a request through the layer; it is under way for as long as its response is there.
async fn send(rules: &Rules, path: &str, user: &str) -> Answer {
    let service = tower::service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::default()))
    });
    let layered = tower::Layer::layer(&rules.layer(), service);
    let answer = tower::ServiceExt::oneshot(layered, request(path, &[("x-user", user)])).await;
    answer.expect("the service does not fail")
}

#[tokio::test(start_paused = true)]
async fn a_rule_bounds_how_much_of_a_key_is_under_way_and_waits_as_it_says() {
    let rules = rules(AT_ONCE);
    let upload = send(&rules, "/x", "ada").await;
    assert_eq!(upload.status(), 200);
    assert!(upload.headers()["ratelimit-policy"].to_str().expect("text").contains("\"uploads\";q=1"));
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

#[tokio::test]
async fn requests_that_are_denied_or_exempt_take_no_permit() {
    let rules = rules(AT_ONCE);
    for (user, status) in [("eve", 410), ("probe", 200)] {
        let answers = [send(&rules, "/x", user).await, send(&rules, "/x", user).await];
        assert!(answers.iter().all(|answer| answer.status() == status && !answer.body().is_holding()));
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
    assert!(none.contains("it names no store: add the section \"store\""), "{none}");
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

/// A folder that is gone with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("sluicegate-sections-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
