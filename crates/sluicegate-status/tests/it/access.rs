//! Who is let in, and what is refused.

use std::time::Duration;

use http::{Request, StatusCode, Version};
use sluicegate_status::StatusPage;
use sluicegate_tests::log::lines_of;
use sluicegate_tower::key::PeerAddr;

use crate::support::{ORIGIN, World, from_ada, get, is_sealed, post, send, submit, submit_to, token};

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn every_answer_carries_the_fields_that_keep_scripts_frames_and_caches_out() {
    let world = World::new();
    let page = world.guarded();
    for path in ["/", "/?style", "/status.json", "/nowhere", "/?theme=dark"] {
        assert!(is_sealed(get(&page, path).await.headers()), "{path}");
    }
    let strangers = send(&page, Request::get("/").header("host", "ops.example.org"), "").await;
    let misdirected = send(&page, Request::get("/").header("host", "evil.example"), "").await;
    let unsigned = send(&page, from_ada("POST", "/").header("content-type", FORM), "do=reset").await;
    let looked_up = submit(&page, "do=look-up&policy=login&key=a").await;
    let led_on = submit_to(&page, "/", "do=look-up&policy=login&key=a").await;
    for (response, status) in [
        (led_on, StatusCode::SEE_OTHER),
        (strangers, StatusCode::FORBIDDEN),
        (misdirected, StatusCode::MISDIRECTED_REQUEST),
        (unsigned, StatusCode::FORBIDDEN),
        (looked_up, StatusCode::OK),
    ] {
        assert_eq!((response.status(), is_sealed(response.headers())), (status, true));
    }
}

#[tokio::test]
async fn only_those_whom_the_guard_names_are_let_in() {
    let world = World::new();
    let page = world.guarded();
    for path in ["/", "/status.json", "/?style"] {
        let stranger = send(&page, Request::get(path).header("host", "ops.example.org"), "").await;
        assert_eq!(stranger.status(), StatusCode::FORBIDDEN, "{path}");
        assert!(!stranger.body().contains("login"), "{path}");
        assert_eq!(get(&page, path).await.status(), StatusCode::OK, "{path}");
    }
}

/// Behind a proxy on the same machine, all policies were set to shadow from outside.
#[tokio::test]
async fn a_page_for_this_machine_is_not_for_the_clients_of_a_proxy_here() {
    let world = World::new();
    let warned =
        lines_of(|| drop(world.page().only_from_this_machine().secret([7; 32]).host("127.0.0.1").build()));
    assert!(
        warned.iter().any(|line| line.contains("lets in whoever connects from this machine")),
        "{warned:?}"
    );
    let page = world.page().only_from_this_machine().secret([7; 32]).host("127.0.0.1").build().unwrap();
    let status = async |peer: &str, version: Version, fields: &[(&str, &str)]| {
        let peer = PeerAddr(peer.parse().unwrap());
        let request = Request::get("/").version(version).header("host", "127.0.0.1:3000").extension(peer);
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        send(&page, request, "").await.status()
    };
    for peer in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(status(peer, Version::HTTP_11, &[]).await, StatusCode::OK, "{peer}");
    }
    assert_eq!(status("192.0.2.1:1", Version::HTTP_11, &[]).await, StatusCode::FORBIDDEN);
    assert_eq!(status("127.0.0.1:1", Version::HTTP_10, &[]).await, StatusCode::FORBIDDEN);
    // An operator there sees keys and may act, as on any page with a guard.
    world.spend([203, 0, 113, 9], 7).await;
    let peer = PeerAddr("127.0.0.1:1".parse().unwrap());
    let request = || Request::get("/").header("host", "127.0.0.1:3000").extension(peer);
    let body = send(&page, request(), "").await.into_body();
    for shown in ["signed in as local", "203.0.113.9", "look up 203.0.113.9", "Look up a key"] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    for field in ["X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "Via", "CF-Connecting-IP"]
    {
        let shown = status("127.0.0.1:1", Version::HTTP_11, &[(field, "127.0.0.1")]).await;
        assert_eq!(shown, StatusCode::FORBIDDEN, "{field}");
    }
}

#[tokio::test]
async fn a_change_needs_a_fresh_token_of_the_same_operator_and_our_own_origin() {
    let world = World::new();
    let page = world.guarded();
    world.spend([203, 0, 113, 9], 5).await;
    let own = |operator: &str| {
        Request::post("/")
            .header("host", "ops.example.org")
            .header("x-operator", operator)
            .header("content-type", FORM)
    };
    let token = token(&page).await;
    let form = |token: &str| format!("do=reset&policy=login&key=203.0.113.9&token={token}");
    let mut forged = token.clone();
    forged.replace_range(..1, if token.starts_with('1') { "2" } else { "1" });
    for (name, request, body) in [
        ("no token", own("ada").header("origin", ORIGIN), form("")),
        ("a forged token", own("ada").header("origin", ORIGIN), form(&forged)),
        ("somebody else's token", own("bob").header("origin", ORIGIN), form(&token)),
        ("no origin", own("ada"), form(&token)),
        ("a foreign origin", own("ada").header("origin", "https://evil.example"), form(&token)),
        (
            "a foreign site",
            own("ada").header("origin", ORIGIN).header("sec-fetch-site", "cross-site"),
            form(&token),
        ),
        ("a sister's site", own("ada").header("sec-fetch-site", "same-site"), form(&token)),
    ] {
        let response = send(&page, request, &body).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{name}");
        assert_eq!(
            world.login.peek(std::net::Ipv4Addr::new(203, 0, 113, 9)).await.unwrap().remaining(),
            0,
            "{name}"
        );
    }
    world.clock.advance(Duration::from_secs(3_600));
    let late = send(&page, own("ada").header("origin", ORIGIN), &form(&token)).await;
    assert_eq!(late.status(), StatusCode::FORBIDDEN);
    assert!(late.body().contains("older than an hour"), "{}", late.body());
}

#[tokio::test]
async fn a_token_of_one_instance_is_good_on_another_with_the_same_secret() {
    let (one, other) = (World::new(), World::new());
    let signed = token(&one.guarded()).await;
    let request =
        from_ada("POST", "/keys/look-up").header("origin", ORIGIN).header("content-type", "application/json");
    let request = request.header("x-status-token", &signed);
    let response = send(&other.guarded(), request, r#"{"policy":"login","key":"ada"}"#).await;
    assert_eq!(response.status(), StatusCode::OK, "{}", response.body());
}

#[tokio::test]
async fn without_a_guard_nothing_can_be_looked_up_or_changed() {
    let world = World::new();
    let page = world.read_only();
    let anybody =
        |method: &str, path: &str| Request::builder().method(method).uri(path).header("origin", ORIGIN);
    let shown = send(&page, anybody("GET", "/"), "").await;
    assert_eq!(shown.status(), StatusCode::OK);
    assert!(!shown.body().contains("<form") && !shown.body().contains("<button"), "{}", shown.body());
    let json = send(&page, anybody("GET", "/status.json"), "").await;
    assert!(json.headers().get("x-status-token").is_none());
    for path in ["/", "/keys/reset", "/keys/look-up"] {
        for (kind, body) in
            [(FORM, "do=reset&policy=login&key=a"), ("application/json", r#"{"policy":"login","key":"a"}"#)]
        {
            let request =
                anybody("POST", path).header("content-type", kind).header("sec-fetch-site", "same-origin");
            let refused = send(&page, request, body).await;
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path} {kind}");
            assert!(refused.body().contains("read-only"), "{}", refused.body());
        }
    }
}

#[tokio::test]
async fn other_methods_types_and_places_are_refused_and_say_what_to_use() {
    let world = World::new();
    let page = world.guarded();
    for (method, path, status, allow) in [
        ("PUT", "/", 405, "GET, HEAD, POST"),
        ("POST", "/status.json", 405, "GET, HEAD"),
        ("GET", "/keys/reset", 405, "POST"),
        ("GET", "/nowhere", 404, ""),
        ("POST", "/", 415, ""),
    ] {
        let response = send(&page, from_ada(method, path), "").await;
        assert_eq!(response.status(), status, "{method} {path}");
        let allowed = response.headers().get("allow").map_or("", |allow| allow.to_str().unwrap());
        assert_eq!(allowed, allow, "{method} {path}");
    }
    assert_eq!(post(&page, "/keys/explode", &serde_json::json!({})).await.0, StatusCode::NOT_FOUND);
    let long = format!("do=look-up&policy=login&key={}", "x".repeat(70_000));
    assert_eq!(submit(&page, &long).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn a_page_that_cannot_be_safe_is_not_built_and_the_error_says_what_to_write() {
    let world = World::new();
    let guarded = || world.page().guard(|_| Some("ada")).secret([7; 32]).host("127.0.0.1");
    assert!(guarded().build().is_ok());
    let limits = || sluicegate_tower::limits::LimitsHandle::new(world.limits.clone());
    for (builder, problem) in [
        (world.page(), "without a guard"),
        (StatusPage::new(&world.store).guard(|_| Some("ada")).host("127.0.0.1"), "without a secret"),
        (world.page().guard(|_| Some("ada")).secret([7; 32]), "without a host"),
        (guarded().secret("hunter2"), "a secret of 7 bytes"),
        (guarded().origin("ops.example.org"), "\"ops.example.org\" is not an origin"),
        (guarded().host("https://ops"), "\"https://ops\" is not a host"),
        (guarded().limits("api", limits()), "two limits named \"api\""),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
