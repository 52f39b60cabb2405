//! Waiting rooms: shown with the rest, and steered while visitors wait.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{Quota, StoreError};
use sluicegate_overflow::line::{LineMode, MemoryLine};
use sluicegate_overflow::{WaitingRoom, WaitingRoomLayer};
use sluicegate_status::StatusPage;
use sluicegate_tests::log::Log;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::room::{Room, RoomChange, RoomNumbers};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{ORIGIN, SECRET, World, from_ada, get, post, send, submit};

/// A room on the clock of this world, and a page with it.
fn with_a_room(world: &World) -> (WaitingRoom, StatusPage) {
    let builder = WaitingRoom::builder("sale", "6/min").clock(world.clock.clone());
    let room = builder.build(MemoryLine::new()).unwrap();
    let page = guarded(world, room.clone());
    (room, page)
}

fn guarded(world: &World, room: impl Room) -> StatusPage {
    let who = |request: RequestView<'_>| request.headers.get("x-operator")?.to_str().ok().map(str::to_owned);
    world.page().room(room).guard(who).secret(SECRET).origin(ORIGIN).build().unwrap()
}

/// One poll of a visitor: its status, and its ticket of the answer.
async fn visit(room: &WaitingRoom, ticket: &str) -> (StatusCode, Option<String>) {
    let shop =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let request = Request::get("/").header("x-waiting-room-ticket", ticket).body(()).unwrap();
    let response = WaitingRoomLayer::new(room.clone()).layer(shop).oneshot(request).await.unwrap();
    let ticket = response.headers().get("set-cookie").map(|set| set.to_str().unwrap());
    let ticket = ticket.and_then(|set| Some(set.split(';').next()?.split_once('=')?.1.to_owned()));
    (response.status(), ticket)
}

/// A visitor that is let in, and three that wait, of which this is the ticket of the last.
async fn four_visitors(room: &WaitingRoom) -> String {
    let mut last = visit(room, "").await;
    assert_eq!(last.0, StatusCode::OK);
    for _ in 0..3 {
        last = visit(room, "").await;
        assert_eq!(last.0, StatusCode::SERVICE_UNAVAILABLE);
    }
    last.1.unwrap()
}

async fn document(page: &StatusPage) -> Value {
    serde_json::from_str(get(page, "/status.json").await.body()).unwrap()
}

#[tokio::test]
async fn rooms_are_listed_with_who_waits_and_for_how_long_and_readers_get_no_form() {
    let world = World::new();
    let (room, page) = with_a_room(&world);
    four_visitors(&room).await;
    let expected = json!([{"name": "sale", "mode": "metered", "rate": "6/min", "waiting": 3, "active": null,
        "admitted": 1, "passed_over": 0, "wait_seconds": 40}]);
    assert_eq!(document(&page).await["rooms"], expected);
    let body = get(&page, "/").await.into_body();
    assert!(
        body.contains("Waiting rooms") && body.contains(">40 s<") && body.contains("open to all"),
        "{body}"
    );
    let open = world.page().room(room).unguarded_and_read_only().build().unwrap();
    let body = get(&open, "/").await.into_body();
    assert!(body.contains(">40 s<") && !body.contains("<form") && !body.contains("<button"), "{body}");
    assert!(
        !get(&world.guarded(), "/").await.body().contains("Waiting rooms"),
        "without rooms there is no list"
    );
}

#[tokio::test]
async fn a_room_is_set_paused_and_opened_while_visitors_wait_and_they_keep_their_places() {
    let world = World::new();
    let log = Log::of_this_thread();
    let (room, page) = with_a_room(&world);
    let last = four_visitors(&room).await;

    let (status, changed) = post(&page, "/rooms/sale", &json!({"rate": "12/min"})).await;
    assert_eq!(
        (status, &changed["rate"], &changed["waiting"]),
        (StatusCode::OK, &json!("12/min"), &json!(3))
    );
    assert_eq!(changed, document(&page).await["rooms"][0], "the answer is the changed part");
    let response = submit(&page, "do=change-room&room=sale&seen=12%2Fmin+metered&mode=paused").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.body().contains("sale: 12/min paused"), "{}", response.body());
    assert_eq!(document(&page).await["rooms"][0]["wait_seconds"], Value::Null);
    world.clock.advance(Duration::from_secs(20));
    assert_eq!(visit(&room, &last).await, (StatusCode::SERVICE_UNAVAILABLE, None), "it keeps its ticket");

    let (status, changed) = post(&page, "/rooms/sale", &json!({"mode": "open", "confirm": "yes"})).await;
    assert_eq!((status, &changed["mode"]), (StatusCode::OK, &json!("open")));
    assert_eq!(visit(&room, &last).await.0, StatusCode::OK);
    let both = json!({"mode": "metered", "rate": "5/s", "seen": "12/min open"});
    let (_, changed) = post(&page, "/rooms/sale", &both).await;
    assert_eq!((&changed["mode"], &changed["rate"]), (&json!("metered"), &json!("5/s")));

    let events = document(&page).await["events"].clone();
    let events: Vec<_> = events.as_array().unwrap().iter().filter(|event| event["room"] == "sale").collect();
    assert_eq!(
        *events[0],
        json!({"at": "2023-11-14T22:00:00.000Z", "what": "room_rate_changed", "by": "ada", "room": "sale",
            "from": "6/min", "to": "12/min"})
    );
    let modes = events.iter().filter(|event| event["what"] == "room_mode_changed");
    let modes: Vec<_> = modes.map(|event| format!("{} {}", event["from"], event["to"])).collect();
    assert_eq!(modes, ["\"metered\" \"paused\"", "\"paused\" \"open\"", "\"open\" \"metered\""]);
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("ada: room mode changed <strong>sale</strong> paused → open"), "{body}");
    let lines = log.lines();
    let audit = lines.iter().filter(|line| line.contains("sluicegate::audit") && line.contains("sale"));
    assert_eq!(audit.filter(|line| line.contains("ada")).count(), 4, "{lines:?}");
}

#[tokio::test]
async fn a_change_of_a_room_that_cannot_be_is_refused_names_the_value_and_changes_nothing() {
    let world = World::new();
    let (room, page) = with_a_room(&world);
    let long = "x".repeat(5_000);
    for (name, body, problem) in [
        ("sale", json!({"rate": "five/min"}), "\"five/min\" is not a quota"),
        ("sale", json!({"rate": "0/min"}), "0"),
        ("sale", json!({"rate": "5/month"}), "each month of the calendar has another length"),
        ("sale", json!({"mode": "closed"}), "\"closed\" is not a mode of a waiting room"),
        ("sale", json!({"mode": long}), "is not a mode of a waiting room"),
        ("sale", json!({"rate": "9/min", "mode": "closed"}), "\"closed\" is not a mode"),
        ("sale", json!({"rate": "0/min", "mode": "paused"}), "0"),
        ("sale", json!({}), "say which rate or which mode"),
        ("sale", json!({"mode": "open"}), "confirm that all who wait"),
        ("shop", json!({"rate": "9/min"}), "no waiting room named \"shop\" is on this page"),
    ] {
        let (status, answer) = post(&page, &format!("/rooms/{name}"), &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        let said = answer["error"].as_str().unwrap();
        assert!(said.contains(problem) && said.len() < 300, "{answer}");
        assert_eq!((room.status().rate.limit(), room.status().mode), (6, LineMode::Metered), "{body}");
    }
    assert_eq!(document(&page).await["events"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn the_second_of_two_operators_who_have_seen_the_same_room_is_told_what_the_first_has_done() {
    let world = World::new();
    let (room, page) = with_a_room(&world);
    let body = get(&page, "/").await.into_body();
    assert!(body.contains("value=\"6/min metered\""), "{body}");
    let first = submit(&page, "do=change-room&room=sale&seen=6%2Fmin+metered&rate=3/min").await;
    assert_eq!(first.status(), StatusCode::OK);
    let second = submit(&page, "do=change-room&room=sale&seen=6%2Fmin+metered&rate=30/min").await;
    assert_eq!(second.status(), StatusCode::CONFLICT);
    assert!(second.body().contains("is at 3/min metered now"), "{}", second.body());
    assert_eq!(room.status().rate.limit(), 3);
}

#[tokio::test]
async fn a_room_is_changed_by_an_operator_with_a_token_only() {
    let world = World::new();
    let (room, page) = with_a_room(&world);
    let open = world.page().room(room.clone()).unguarded_and_read_only().build().unwrap();
    let request = || {
        from_ada("POST", "/rooms/sale").header("origin", ORIGIN).header("content-type", "application/json")
    };
    for page in [&page, &open] {
        let refused = send(page, request(), r#"{"mode":"paused"}"#).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{}", refused.body());
    }
    let looked = send(&page, from_ada("GET", "/rooms/sale"), "").await;
    assert_eq!(
        (looked.status(), &looked.headers()["allow"]),
        (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap())
    );
    assert_eq!(room.status().mode, LineMode::Metered);
}

/// A room whose line is away.
struct Away;

impl Room for Away {
    fn name(&self) -> &str {
        "sale"
    }

    fn numbers(&self) -> RoomNumbers {
        RoomNumbers::new("metered", Quota::per_second(5))
    }

    fn change<'a>(&'a self, _: Option<&'a str>, _: Option<&'a str>) -> RoomChange<'a> {
        Box::pin(async { Err(StoreError::new(StoreErrorKind::Unavailable).into()) })
    }
}

#[tokio::test]
async fn a_room_whose_line_is_away_is_shown_and_a_change_of_it_answers_503() {
    let world = World::new();
    let page = guarded(&world, Away);
    assert_eq!(document(&page).await["rooms"][0]["rate"], "5/s");
    let (status, answer) = post(&page, "/rooms/sale", &json!({"mode": "paused"})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer["error"], "the store cannot be reached");
    assert_eq!(document(&page).await["events"].as_array().unwrap().len(), 0);
}

#[test]
fn two_rooms_of_one_name_are_a_mistake() {
    let world = World::new();
    let error = world.page().room(Away).room(Away).unguarded_and_read_only().build().unwrap_err();
    assert_eq!(error.to_string(), "two waiting rooms named \"sale\": give each a name of its own");
}
