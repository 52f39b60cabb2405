//! What the page shows.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_core::Policy;
use sluicegate_in_flight::InFlight;

use crate::support::{World, from_ada, get, led_on, send, submit};

#[tokio::test]
async fn script_in_names_and_headers_stays_text() {
    let world = World::new();
    let script = "<script>alert(1)</script>\"'><img src=x>";
    let page = world
        .page()
        .instance(script)
        .guard(|request| request.headers.get("x-operator").map(|_| "<script>alert(2)</script>".to_owned()));
    let page = page.secret([7; 32]).origin("https://ops.example.org").build().unwrap();
    let encoded = "%3Cscript%3Ealert(3)%3C%2Fscript%3E";
    let plain = send(&page, from_ada("GET", "/"), "").await;
    let token = get(&page, "/status.json").await.headers()["x-status-token"].to_str().unwrap().to_owned();
    let looked_up = |form: String| {
        let request = from_ada("POST", "/?theme=%22%3E%3Cscript%3E")
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded");
        let (page, body) = (page.clone(), format!("token={token}&{form}"));
        async move { led_on(&page, send(&page, request, &body).await).await }
    };
    let bodies = [
        plain.into_body(),
        looked_up(format!("do=look-up&policy={encoded}&key=a")).await.into_body(),
        looked_up(format!("do=look-up&policy=login&key={encoded}")).await.into_body(),
        looked_up(format!("do={encoded}")).await.into_body(),
        looked_up(format!("do=look-up&request.limits={encoded}")).await.into_body(),
        looked_up(format!("do=look-up&request.limits=api&request.headers=x-api-key%3A{encoded}"))
            .await
            .into_body(),
    ];
    for body in bodies {
        assert!(body.contains("&lt;script&gt;alert(1)") && body.contains("&lt;script&gt;alert(2)"), "{body}");
        assert!(!body.contains("<script") && !body.contains("<img"), "{body}");
    }
}

#[tokio::test]
async fn policies_that_are_opened_or_replaced_later_are_on_the_page() {
    let world = World::new();
    let page = world.guarded();
    let policies = async || -> Vec<String> {
        let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
        let all = json["policies"].as_array().unwrap().iter();
        all.map(|policy| format!("{} {}", policy["name"], policy["quotas"][0]["limit"])).collect()
    };
    assert_eq!(policies().await, ["\"api\" 100", "\"login\" 5"]);
    let search = Policy::gcra("search", "9/s").shadow().hidden().on(&world.store).unwrap();
    world
        .login
        .replace(Policy::sliding_counter("login", "7/min").build().unwrap(), Default::default())
        .unwrap();
    assert_eq!(policies().await, ["\"api\" 100", "\"login\" 7", "\"search\" 9"]);
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("(shadow)") && body.contains("(hidden from clients)"), "{body}");
    drop(search);
    assert_eq!(policies().await.len(), 2);
}

#[tokio::test]
async fn the_theme_is_chosen_by_a_link_and_kept_by_forms() {
    let world = World::new();
    let page = world.guarded();
    assert!(get(&page, "/?theme=dark").await.body().contains("data-theme=\"dark\""));
    assert!(!get(&page, "/").await.body().contains("data-theme="));
    // A form goes where its page is, with its query.
    let body = submit(&page, "do=look-up&policy=login&key=a").await.into_body();
    assert!(!body.contains("action="), "{body}");
    let style = get(&page, "/?style").await;
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
}

#[tokio::test]
async fn the_json_has_the_shape_that_was_promised_and_counts_what_was_decided() {
    let world = World::new();
    let page = world.guarded();
    world.spend([203, 0, 113, 9], 7).await;
    world.clock.advance(Duration::from_secs(60));
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    assert_eq!((&json["version"], &json["instance"]), (&json!(1), &json!("web-3")));
    assert_eq!((&json["at"], &json["uptime_seconds"]), (&json!("2023-11-14T22:01:00.000Z"), &json!(60)));
    let store = &json["stores"][0];
    assert_eq!((&store["state"], &store["breaker"]), (&json!("ok"), &json!("closed")));
    let zero = json!({"timeout": 0, "unavailable": 0, "protocol": 0});
    assert_eq!((&store["errors"], &store["evictions"]), (&zero, &json!(0)));
    let login = &json["policies"][1];
    let quota = json!([{"label": "login", "limit": 5, "period_seconds": 60, "burst": 5}]);
    assert_eq!(
        (&login["name"], &login["algorithm"], &login["quotas"]),
        (&json!("login"), &json!("sliding-counter"), &quota)
    );
    assert_eq!(
        (&login["mode"], &login["hidden"], &login["override"]),
        (&json!("enforce"), &json!(false), &Value::Null)
    );
    assert_eq!((&login["on_exceeded"], &login["on_outage"]), (&json!("deny"), &json!("local")));
    let minutes = login["minutes"].as_array().unwrap();
    assert_eq!(minutes.len(), 60);
    assert_eq!(
        minutes[59],
        json!({"at": "2023-11-14T22:00:00.000Z", "allowed": 5, "rejected": 2, "other_refused": 0, "outage": 0, "near": 1})
    );
    assert_eq!((&minutes[0]["allowed"], &login["waiting"]), (&json!(0), &json!(0)));
    let running = json!({"at": "2023-11-14T22:01:00.000Z", "allowed": 0, "rejected": 0, "other_refused": 0, "outage": 0, "near": 0});
    assert_eq!(login["minute"], running);
    assert_eq!(
        fields(&login["per_second"]),
        BTreeSet::from(["allowed", "delayed", "other_refused", "outage", "rejected", "suspended"])
    );
    let api = &json["policies"][0]["minutes"][59];
    assert_eq!((&api["allowed"], &api["rejected"], &api["other_refused"]), (&json!(5), &json!(0), &json!(2)));
    assert_eq!(get(&page, "/status.json").await.headers()["content-type"], "application/json");
    // The page says the same.
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("refused by another policy"), "{body}");
    let bars = bars(&body, "login");
    assert_eq!((bars.len(), &bars[29]), (30, &("22:00".to_owned(), 5, 2)));
}

/// The names of an object's fields. Their order depends on a feature of serde_json, which any crate may turn on.
fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn each_object_of_the_json_has_the_fields_that_were_promised() {
    let world = World::new();
    let jobs = InFlight::new("jobs", 2).unwrap();
    let api = InFlight::adaptive("api").build().unwrap();
    [&jobs, &api].into_iter().for_each(|limit| world.store.in_flight(limit));
    let tokens = Policy::gcra("tokens", "5/month").on(&world.store).unwrap();
    for _ in 0..9 {
        _ = tokens.check("ada").await.unwrap();
    }
    let page = world.guarded();
    let json: Value = serde_json::from_str(get(&page, "/status.json").await.body()).unwrap();
    let tokens = json["policies"].as_array().unwrap().iter().find(|it| it["name"] == "tokens").unwrap();
    let limit = |kind: &str, name: &str| {
        json[kind].as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap()
    };
    for (object, promised) in [
        (&tokens["offenders"][0], "error key kind ref rejected share suspended_until"),
        (&tokens["budgets"][0], "from key kind label limit ref until used used_up_at"),
        (
            limit("adaptive", "api"),
            "algorithm at_least at_most in_flight latency_ms limit minutes mode name shed waiting would_shed",
        ),
        (limit("in_flight", "jobs"), "in_use minute minutes name per_second permits totals"),
    ] {
        assert_eq!(fields(object), promised.split(' ').collect(), "{object}");
    }
}

/// The table below the bars of a policy: the beginning of each, and the requests that were allowed and refused.
fn bars(body: &str, policy: &str) -> Vec<(String, u64, u64)> {
    let (_, row) = body.split_once(&format!("<summary>requests of {policy} as a table</summary>")).unwrap();
    let (table, _) = row.split_once("</table>").unwrap();
    let cell = |row: &str, start: &str| -> String {
        row.split_once(start).unwrap().1.split('<').next().unwrap().to_owned()
    };
    let rows = table.split("<tr>").skip(2).map(|row| {
        let count = |layer: &str| cell(row, &format!("data-label=\"{layer}\">")).parse().unwrap();
        (cell(row, "<th scope=\"row\">"), count("let in"), count("refused"))
    });
    rows.collect()
}

/// Five allowed and two rejected once looked alike, and neither was there before the minute was over.
#[tokio::test]
async fn the_bars_of_a_policy_have_a_scale_times_and_values_and_show_the_minute_that_is_under_way() {
    let world = World::new();
    let page = world.guarded();
    world.spend([203, 0, 113, 9], 7).await;
    let body = get(&page, "/").await.into_body();
    assert_eq!(bars(&body, "login")[29], ("21:59".to_owned(), 5, 2));
    for shown in [
        "<span>7</span><span>3</span><span>0</span>",
        "21:59: 5 let in, 2 refused</text>",
        "<span>21:01</span>",
    ] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    // An hour later it is in none of the bars, and before that always in one.
    let refused = async || {
        bars(&get(&page, "/").await.into_body(), "login").iter().map(|bar| bar.2).collect::<Vec<_>>()
    };
    world.clock.advance(Duration::from_secs(3_540));
    assert_eq!((refused().await[0], refused().await.iter().sum::<u64>()), (2, 2));
    world.clock.advance(Duration::from_secs(60));
    let body = get(&page, "/").await.into_body();
    assert!(!body.contains("requests of login as a table") && body.contains("no requests"), "{body}");
}

#[tokio::test]
async fn a_notice_of_the_application_stands_on_the_page_until_it_is_taken_back_and_readers_see_its_subject_only()
 {
    let world = World::new();
    let (page, open) = (world.guarded(), world.read_only());
    let text = "line 3: \"5/mn\" is not a quota\n   3 | <script>\n     | ^^^^";
    for page in [&page, &open] {
        page.notice("rules.yaml", text);
    }
    world.clock.advance(Duration::from_secs(60));
    page.notice("rules.yaml", text);
    let json =
        async |page| -> Value { serde_json::from_str(get(page, "/status.json").await.body()).unwrap() };
    let since = "2023-11-14T22:00:00.000Z";
    assert_eq!(json(&page).await["notices"], json!([{"about": "rules.yaml", "since": since, "text": text}]));
    assert_eq!(json(&open).await["notices"], json!([{"about": "rules.yaml", "since": since}]));
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("5/mn") && body.contains("^^^^") && !body.contains("<script"), "{body}");
    let body = get(&open, "/").await.into_body();
    assert!(body.contains("rules.yaml") && !body.contains("5/mn"), "{body}");
    page.take_back_notice("rules.yaml");
    assert_eq!(json(&page).await["notices"], json!([]));
    assert!(!get(&page, "/").await.body().contains("rules.yaml"));
}

#[tokio::test]
async fn the_head_says_how_the_store_is_doing_and_the_table_how_near_the_last_hour_was() {
    let world = World::new();
    let page = world.guarded();
    let head = async || {
        let body = get(&page, "/").await.into_body();
        let (head, table) = body.split_once("</header>").unwrap();
        (head.to_owned(), table.to_owned())
    };
    let (before, _) = head().await;
    assert!(
        before.contains("OK</span> · 0 keys that have spent something, room for ")
            && !before.contains("answers within"),
        "{before}"
    );
    // Of answers in memory one in 64 is timed, whichever.
    for _ in 0..5_000 {
        let _ = world.login.peek("eve").await.unwrap();
    }
    world.spend([203, 0, 113, 9], 7).await;
    let (after, _) = head().await;
    assert!(
        after.contains("s · 2 keys that have spent something, room for ")
            && after.contains(", 99 of 100 answers within "),
        "{after}"
    );
    // The last of five leaves none.
    world.clock.advance(Duration::from_secs(60));
    assert!(head().await.1.contains(">20 %<"), "{}", head().await.1);
    world.clock.advance(Duration::from_secs(3_600));
    assert!(!head().await.1.contains(">20 %<"), "an hour later");
}

#[tokio::test]
async fn an_alarm_stands_first_and_only_operators_see_its_networks() {
    let world = World::new();
    let (page, open) = (world.guarded(), world.read_only());
    let ask = |address: u32| {
        world.clock.advance(Duration::from_millis(100));
        let _ = world.login.check(Ipv4Addr::from(address)).now().unwrap().unwrap();
    };
    // Ten people for half an hour, and then two hundred addresses of one network for a minute.
    (0..18_000).for_each(|turn| ask(0x0A00_0000 + turn % 10 * 65_536));
    (0..600).for_each(|turn| ask(0xC633_6400 + turn % 200));
    page.notice("rules.yaml", "line 3");
    let body = get(&page, "/").await.into_body();
    let places =
        ["new keys of login a minute: 200", "198.51.100.0/24 (", "line 3"].map(|text| body.find(text));
    assert!(places[0].is_some() && places.is_sorted() && places[1].is_some(), "{places:?}\n{body}");
    let body = get(&open, "/").await.into_body();
    assert!(body.contains("login</strong> since") && !body.contains("198.51.100"), "{body}");
}
