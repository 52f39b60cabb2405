//! Waiting rooms of a rules file, over sockets: reloads in the middle of a line, other limits beside it, and several rooms.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::header::{COOKIE, SET_COOKIE};
use http::{Request, StatusCode};
use serde_json::Value;
use sluicegate::clock::ManualClock;
use sluicegate::overflow::line::{LineMode, MemoryLine};
use sluicegate::overflow::{Rooms, WaitingRoom};
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_tests::memory;
use sluicegate_tests::time::on_the_hour;

use crate::rules::folder::Folder;
use crate::support::{Client, serve, whole};

const SECRET: &str = "sixteen bytes or more";

/// A shop behind the rules of a file, and the clock of its rooms.
struct Shop {
    folder: Folder,
    rooms: Rooms,
    rules: Rules,
    clock: ManualClock,
    server: SocketAddr,
}

impl Shop {
    async fn with(text: &str) -> Self {
        let (clock, folder) = (on_the_hour(), Folder::with(text));
        let rooms = Rooms::new(MemoryLine::new()).secrets(SECRET, None).clock(clock.clone());
        let rules = Rules::builder().rooms(rooms.clone());
        let rules = rules.open(&memory::store().0, folder.file(), Variables::none());
        let rules = rules.unwrap_or_else(|error| panic!("{error}"));
        let shop = Router::new().fallback(any(async || "the shop")).layer(rules.layer());
        Self { folder, rooms, rules, clock, server: serve(shop).await }
    }

    /// What the reload says, in its log line.
    fn reload(&self, text: &str) -> String {
        self.folder.swap(text);
        match self.rules.reload() {
            Ok(changes) => changes.map(|changes| changes.to_string()).unwrap_or_default(),
            Err(error) => error.to_string(),
        }
    }

    fn after(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    fn room(&self) -> WaitingRoom {
        self.rooms.room("sale").get().unwrap()
    }

    async fn explain(&self, path: &str) -> String {
        self.rules.explain(&Request::get(path).body(()).unwrap()).await.to_string()
    }
}

/// A visitor with its cookies, on one connection.
struct Visitor {
    client: Client,
    cookies: Vec<String>,
}

/// The response to a request: its status, what is left of the limit that it tells, and its JSON.
type LineAnswer = (StatusCode, Option<u64>, Value);

impl Visitor {
    async fn new(shop: &Shop) -> Self {
        Self { client: Client::connect(shop.server).await, cookies: Vec::new() }
    }

    async fn send(&mut self, request: http::request::Builder) -> LineAnswer {
        let request = request.header(COOKIE, self.cookies.join("; "));
        let response = whole(self.client.begin_with(request, "").await).await;
        for set in response.headers().get_all(SET_COOKIE) {
            let cookie = set.to_str().unwrap().split(';').next().unwrap().to_owned();
            let name = cookie.split('=').next().unwrap().to_owned();
            self.cookies.retain(|known| !known.starts_with(&name));
            self.cookies.push(cookie);
        }
        let left = response.headers().get("x-ratelimit-remaining");
        let left = left.map(|left| left.to_str().unwrap().parse().unwrap());
        (response.status(), left, serde_json::from_slice(response.body()).unwrap_or_default())
    }

    async fn ask(&mut self, path: &str) -> LineAnswer {
        self.send(Request::get(path)).await
    }

    /// Its place in line, or 0 if it is in.
    async fn place(&mut self, path: &str) -> u64 {
        match self.ask(path).await {
            (StatusCode::OK, ..) => 0,
            (StatusCode::SERVICE_UNAVAILABLE, _, told) => {
                assert_eq!(told.get("lost"), None, "{told}");
                told["position"].as_u64().unwrap_or_else(|| panic!("{told}"))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A line of visitors, the first of whom is in.
async fn line(shop: &Shop, count: u64) -> Vec<Visitor> {
    let mut visitors = Vec::new();
    for number in 0..count {
        let mut visitor = Visitor::new(shop).await;
        assert_eq!(visitor.place("/shop").await, number);
        visitors.push(visitor);
    }
    visitors
}

fn sale(rate: &str, more: &str) -> String {
    format!(
        "version: 1
policies:
  sale: {{ quota: {rate}, on_exceeded: room{more} }}
  api: {{ quota: 100/h }}
rules:
  - {{ name: all, limit: api, key: everybody }}
  - {{ name: shop, only_if: {{ path: /shop }}, limit: sale, key: client }}\n"
    )
}

const WITHOUT: &str = "version: 1
policies: { api: { quota: 100/h } }
rules: [{ name: all, limit: api, key: everybody }]
";

#[tokio::test]
async fn a_reload_changes_the_rate_while_visitors_wait_and_all_keep_their_places() {
    let shop = Shop::with(&sale("1/min", "")).await;
    let mut visitors = line(&shop, 6).await;
    assert_eq!(
        shop.reload(&sale("6/min", "")),
        "changed sale 1/min -> 6/min, all who wait keep their places; kept api"
    );
    for (number, visitor) in (0..).zip(&mut visitors) {
        assert_eq!(visitor.place("/shop").await, number);
    }
    // Each ten seconds one of them, in their order.
    for at in 1..visitors.len() {
        shop.after(10);
        assert_eq!(visitors[at].place("/shop").await, 0);
        if at + 1 < visitors.len() {
            assert_eq!(visitors[at + 1].place("/shop").await, 1);
        }
    }
    assert_eq!(shop.room().status().admitted, 6);
}

#[tokio::test]
async fn a_broken_edit_keeps_the_line_and_its_rate() {
    let shop = Shop::with(&sale("1/min", "")).await;
    let mut visitors = line(&shop, 3).await;
    for wrong in [
        sale("0/min", ""),
        sale("1/min", ", algorithm: gcra"),
        sale("1/min", ", room: { most_active: 0 }"),
        sale("1/min", ", room: { opens_at: noon }"),
        sale("6/min", "").replace("100/h", "100/fortnight"),
    ] {
        let told = shop.reload(&wrong);
        assert!(told.contains("error: "), "{wrong}: {told}");
        assert_eq!(visitors[2].place("/shop").await, 2, "{told}");
    }
    let explained = shop.explain("/shop").await;
    assert!(
        explained.contains("  shop: waiting room sale, 1/min, 2 wait, a newcomer for about "),
        "{explained}"
    );
    assert_eq!(shop.reload(&sale("1/min", "")), "");
    shop.after(60);
    assert_eq!(visitors[1].place("/shop").await, 0);
}

#[tokio::test]
async fn a_rule_that_leaves_lets_all_in_and_one_that_comes_back_begins_a_line() {
    let shop = Shop::with(&sale("1/min", "")).await;
    let mut visitors = line(&shop, 4).await;
    assert_eq!(shop.reload(WITHOUT), "removed sale; kept api");
    assert!(shop.rooms.room("sale").get().is_none());
    for visitor in &mut visitors[2..] {
        assert_eq!(visitor.place("/shop").await, 0);
    }

    assert_eq!(shop.reload(&sale("2/min", "")), "added sale; kept api");
    let mut newcomer = Visitor::new(&shop).await;
    assert_eq!(newcomer.place("/shop").await, 0, "nobody is before it");
    assert_eq!(visitors[0].place("/shop").await, 0, "its pass is good as before");
    let (status, _, told) = visitors[1].ask("/shop").await;
    assert_eq!((status, &told["position"]), (StatusCode::SERVICE_UNAVAILABLE, &1.into()));
    assert_eq!(told["lost"], "Your former place was given up, and this is a new one.");
}

#[tokio::test]
async fn polls_of_a_visitor_that_waits_spend_nothing_and_its_entry_does() {
    let shop = Shop::with(&sale("1/min", "")).await;
    let mut first = Visitor::new(&shop).await;
    assert_eq!(first.ask("/shop").await, (StatusCode::OK, Some(99), Value::Null));
    let mut second = Visitor::new(&shop).await;
    for _ in 0..20 {
        let (status, left, _) = second.ask("/shop").await;
        assert_eq!((status, left), (StatusCode::SERVICE_UNAVAILABLE, None));
    }
    // What is no GET does not wait, and spends nothing either.
    let (status, _, told) = second.send(Request::post("/shop")).await;
    assert_eq!((status, &told["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &"enter-first".into()));
    assert_eq!(first.ask("/shop").await.1, Some(98));
    shop.after(60);
    assert_eq!(second.ask("/shop").await, (StatusCode::OK, Some(97), Value::Null));
    assert_eq!(second.send(Request::post("/shop")).await.1, Some(96));
    assert_eq!(second.ask("/elsewhere").await.1, Some(95));
}

#[tokio::test]
async fn a_limit_that_refuses_a_visitor_does_not_take_its_pass() {
    let shop = Shop::with(&sale("1/min", "").replace("100/h", "1/h")).await;
    let mut visitors = line(&shop, 2).await;
    shop.after(60);
    assert_eq!(visitors[1].ask("/shop").await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(shop.room().status().admitted, 2);
    assert_eq!(visitors[1].ask("/shop").await.0, StatusCode::TOO_MANY_REQUESTS, "and not in line again");
    assert_eq!(shop.room().status().waiting, 0);
}

#[tokio::test]
async fn denials_and_exemptions_come_before_the_room_and_a_group_has_one_rule() {
    let text = sale("1/h", "").replace(
        "rules:",
        "deny: [{ name: banned, only_if: { query: { who: mallory } } }]
exempt: [{ name: health, only_if: { query: { who: probe } } }]
rules:
  - { name: staff, group: door, only_if: { query: { who: ada } }, limit: api, share: 1/2, key: everybody }",
    );
    let shop = Shop::with(&text.replace("name: shop,", "name: shop, group: door,")).await;
    line(&shop, 2).await;
    let mut visitor = Visitor::new(&shop).await;
    for (who, status) in [
        ("mallory", StatusCode::FORBIDDEN),
        ("probe", StatusCode::OK),
        ("ada", StatusCode::OK),
        ("eve", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        assert_eq!(visitor.ask(&format!("/shop?who={who}")).await.0, status, "{who}");
    }
    assert!(
        shop.explain("/shop?who=ada").await.contains("  shop: not asked: of group door, rule staff applies")
    );
}

const TWO: &str = "version: 1
policies:
  site: { quota: 1/min, on_exceeded: room }
  desk: { quota: 1/h, on_exceeded: room }
rules:
  - { name: all, limit: site, key: client }
  - { name: desk, only_if: { path: /desk }, limit: desk, key: client }
";

#[tokio::test]
async fn two_rooms_are_two_lines_and_take_no_tickets_of_each_other() {
    let shop = Shop::with(TWO).await;
    let mut first = Visitor::new(&shop).await;
    assert_eq!(first.ask("/desk").await.0, StatusCode::OK);
    // Through the one and in line for the other: it keeps the pass that it was given.
    shop.after(60);
    let mut second = Visitor::new(&shop).await;
    let (status, _, told) = second.ask("/desk").await;
    assert_eq!((status, &told["room"]), (StatusCode::SERVICE_UNAVAILABLE, &"desk".into()));
    assert_eq!(second.cookies.len(), 2, "{:?}", second.cookies);
    assert_eq!(second.ask("/").await.0, StatusCode::OK);
    let numbers = |name| shop.rooms.room(name).get().unwrap().status();
    assert_eq!((numbers("site").admitted, numbers("desk").admitted, numbers("desk").waiting), (2, 1, 1));

    let ticket = |name: &str| {
        let name = format!("__Host-room-{name}=");
        first.cookies.iter().find_map(|cookie| cookie.strip_prefix(&name).map(str::to_owned)).unwrap()
    };
    let mut forger = Visitor::new(&shop).await;
    let (status, _, told) =
        forger.send(Request::get("/").header("x-waiting-room-ticket", ticket("desk"))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told["lost"], "This is a new place: the ticket is for another room.");
    let both = Request::get("/desk").header("x-waiting-room-ticket", ticket("site"));
    let both = both.header("x-waiting-room-ticket", ticket("desk"));
    assert_eq!(Visitor::new(&shop).await.send(both).await.0, StatusCode::OK, "a copy of both passes");
}

#[tokio::test]
async fn a_rate_that_an_operator_has_set_stays_until_the_file_says_another_one() {
    let shop = Shop::with(&sale("1/min", "")).await;
    let mut visitors = line(&shop, 3).await;
    shop.room().set_rate("4/min").await.unwrap();
    let told = shop.reload(&sale("1/min", ", room: { places_per_client: 2, pass_lasts: 5min }"));
    assert_eq!(told, "changed sale in its options, all who wait keep their places; kept api");
    assert_eq!(visitors[2].place("/shop").await, 2);
    let explained = shop.explain("/shop").await;
    assert!(explained.contains("  shop: waiting room sale, 1/min, set to 4/min, 2 wait"), "{explained}");
    // They have come before places were counted, and one client has two from now on.
    assert_eq!(Visitor::new(&shop).await.place("/shop").await, 3);
    assert_eq!(Visitor::new(&shop).await.place("/shop").await, 4);
    let (_, _, told) = Visitor::new(&shop).await.ask("/shop").await;
    assert_eq!(told["reason"], "too-many-places");

    shop.reload(&sale("2/min", ", room: { most_active: 2 }"));
    shop.after(30);
    assert_eq!(visitors[1].place("/shop").await, 0);
    shop.after(30);
    assert_eq!(visitors[2].place("/shop").await, 0);
    assert!(shop.explain("/shop").await.contains("waiting room sale, 2/min, 2 are inside, 2 wait"));
    shop.after(60);
    assert_ne!(Visitor::new(&shop).await.place("/shop").await, 0, "two are inside");
    shop.reload(&sale("2/min", ""));
    shop.room().set_mode(LineMode::Open).await.unwrap();
    assert_eq!(Visitor::new(&shop).await.place("/shop").await, 0);
    assert!(shop.explain("/shop").await.contains("open to all"));
}

#[tokio::test]
async fn a_room_that_opens_later_draws_lots_and_a_reload_may_move_its_opening() {
    let opens =
        |minutes: u32| sale("60/min", &format!(", room: {{ opens_at: 2026-11-22T10:{minutes:02}:00Z }}"));
    let shop = Shop::with(&opens(40)).await;
    let begins = Duration::from_micros(sluicegate::clock::Clock::now_us(&shop.clock));
    let ten = Duration::from_secs(1_795_341_600);
    shop.clock.set(ten.max(begins));
    let mut visitor = Visitor::new(&shop).await;
    let (_, _, told) = visitor.ask("/shop").await;
    assert_eq!((&told["reason"], &told["opens_after_ms"]), (&"not-open".into(), &2_400_000.into()), "{told}");
    shop.reload(&opens(10));
    let (_, _, told) = visitor.ask("/shop").await;
    assert_eq!((&told["lost"], &told["opens_after_ms"]), (&Value::Null, &600_000.into()), "{told}");
    shop.after(601);
    assert_eq!(visitor.place("/shop").await, 0);
    shop.reload(&opens(59));
    shop.after(1);
    assert_eq!(Visitor::new(&shop).await.place("/shop").await, 0, "a room that has opened stays open");
}

#[test]
fn a_file_with_a_room_is_refused_where_code_gives_none_and_says_which_call_is_missing() {
    let file = RulesFile::parse("rules.yaml", &sale("50/s", ""), &Variables::none()).unwrap();
    let error = Rules::new(&memory::store().0, file).unwrap_err().to_string();
    assert_eq!(
        error,
        "rules.yaml:7:13: error: rule \"shop\" has the waiting room sale, 50/s, and the program gives none: open the file by \
         `Rules::builder().rooms(..)`, with the `Rooms` of the feature \"overflow\""
    );
    let file = RulesFile::parse("rules.yaml", &sale("50/s", ""), &Variables::none()).unwrap();
    let short = Rooms::new(MemoryLine::new()).secrets("short", None);
    let error = Rules::builder().rooms(short).put(&memory::store().0, file).unwrap_err().to_string();
    assert!(
        error.starts_with("rules.yaml:7:13: error: a secret of 5 bytes for the tickets of \"sale\""),
        "{error}"
    );
}

#[test]
fn mistakes_of_rooms_are_told_in_their_places() {
    let told = |text: &str| match RulesFile::parse("rules.yaml", text, &Variables::none()) {
        Ok(_) => panic!("it is good: {text}"),
        Err(error) => error.problems().iter().map(|problem| problem.text().to_owned()).collect::<Vec<_>>(),
    };
    let of_rule = |rule: &str| sale("50/s", ", room: { places_per_client: 2 }") + rule + "\n";
    for (text, expected) in [
        (sale("[50/s, 100/min]", ""), "a waiting room has one rate, as 50/s"),
        (sale("50/s", ", on_outage: deny"), "a waiting room has no \"on_outage\": nothing is spent, and nobody is refused for good"),
        (sale("50/s", ", room: { pass_lasts: 0s }"), "\"0s\" is not a time: the period is 0, and must be at least 1; write \"5s\", \"500ms\" or \"1h\""),
        (sale("50/s", ", room: { open_at: 1 }"), "\"open_at\" is not known here: did you mean \"opens_at\"?"),
        (sale("50/s", "").replace("room", "deny, room: { most_active: 5 }"), "this is of a waiting room: say on_exceeded: room, or leave it out"),
        (sale("50/s", "").replace("limit: sale,", "limit: sale, cost: 2,"), "\"cost\" says nothing here: this rule has a waiting room, which spends nothing"),
        (
            of_rule("  - { name: other, only_if: { path: /other }, limit: sale, key: peer }"),
            "rule \"shop\" counts the places of a client in this waiting room by another key: say the same, or leave \"places_per_client\" out",
        ),
        (
            sale("50/s", "").replace("rules:", "tiers: { plan: { by: header(x-plan), tiers: { free: sale, pro: api }, default_tier: pro } }\nrules:"),
            "\"sale\" is a waiting room, which is no tier: name it as the limit of a rule",
        ),
    ] {
        assert_eq!(told(&text), [expected], "{text}");
    }
}
