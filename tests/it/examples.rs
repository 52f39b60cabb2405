//! The examples that are servers, over a socket: what the `curl` lines that they print promise.

#[path = "../../examples/customers.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
pub(crate) mod customers;
#[path = "../../examples/tiers_jwt.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
pub(crate) mod tiers_jwt;
#[path = "../../examples/token_budget.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
pub(crate) mod token_budget;

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::{Bytes, Incoming};
use sluicegate::Policy;
use sluicegate::clock::ManualClock;
use sluicegate::key::ApiKey;
use sluicegate_tests::memory::store;

use crate::support::{Client, field, numbers, serve, whole};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// The plans, and the tokens that the example prints, in its order: free, pro, enterprise, forged.
async fn plans() -> (Client, [String; 4], ManualClock) {
    let (store, clock) = store();
    let server = serve(tiers_jwt::app(&store).unwrap()).await;
    let guide = tiers_jwt::guide(server).unwrap();
    let tokens = ["FREE", "PRO", "ENTERPRISE", "FORGED"].map(|name| {
        let line = guide.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
        format!("Bearer {}", line.expect("the token is printed"))
    });
    (Client::connect(server).await, tokens, clock)
}

async fn send(client: &mut Client, method: Method, path: &str, fields: &[(&str, &str)]) -> Response<Bytes> {
    let request = Request::builder().method(method).uri(path);
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    whole(client.begin_with(request, "").await).await
}

#[tokio::test]
async fn ten_generations_pass_on_the_free_plan_a_hundred_on_pro_and_all_on_enterprise() {
    let (mut client, [free, pro, enterprise, _], clock) = plans().await;
    for (token, passes) in [(&free, 10), (&pro, 100), (&enterprise, 150)] {
        for number in 1..=150 {
            let answer = send(&mut client, Method::POST, "/ai-generate", &[("authorization", token)]).await;
            let expected = if number <= passes { OK } else { REFUSED };
            assert_eq!(answer.status(), expected, "number {number} of {passes}");
        }
    }
    let refused = send(&mut client, Method::POST, "/ai-generate", &[("authorization", &free)]).await;
    assert_eq!(field(&refused, "retry-after"), "6");
    clock.advance(Duration::from_secs(6));
    let answer = send(&mut client, Method::POST, "/ai-generate", &[("authorization", &free)]).await;
    assert_eq!(answer.status(), OK);
    // Its limit is its own: the default has not counted any of them.
    let search = send(&mut client, Method::GET, "/search", &[("authorization", &free)]).await;
    assert_eq!(numbers(&search)[..2], [100, 99]);
}

#[tokio::test]
async fn a_plan_is_what_a_good_token_says_and_a_forged_one_says_nothing() {
    let (mut client, [free, pro, enterprise, forged], _) = plans().await;
    let address = r#""address";q=3000;w=60"#;
    for (token, plan) in [
        (&free, r#", "api";q=100;w=60"#),
        (&pro, r#", "api";q=1000;w=60"#),
        (&enterprise, ""),
        (&forged, r#", "api";q=100;w=60"#),
    ] {
        let answer = send(&mut client, Method::GET, "/search", &[("authorization", token)]).await;
        assert_eq!(answer.status(), OK);
        assert_eq!(field(&answer, "ratelimit-policy"), format!("{address}{plan}"));
    }
    // The forger spent what is the address's, together with those who have no token.
    let answer = send(&mut client, Method::GET, "/profile", &[]).await;
    assert_eq!(numbers(&answer)[..2], [100, 98]);
}

#[tokio::test]
async fn without_a_token_each_api_key_has_a_free_plan_and_the_address_has_one() {
    let (mut client, [free, ..], _) = plans().await;
    let one = [("x-api-key", "one")];
    for (fields, left) in [
        (&one[..], 99),
        (&[("x-api-key", "two")], 99),
        (&one, 98),
        (&[], 99),
        // The token goes before the API key.
        (&[("authorization", &free), ("x-api-key", "one")], 99),
        (&one, 97),
    ] {
        let answer = send(&mut client, Method::GET, "/profile", fields).await;
        assert_eq!(numbers(&answer)[..2], [100, left], "{fields:?}");
    }
}

#[tokio::test]
async fn each_customer_has_the_quota_of_its_row_and_a_changed_row_is_in_force() {
    let (store, _) = store();
    let file = std::env::temp_dir().join(format!("sluicegate-customers-test-{}.sqlite", std::process::id()));
    let rows = customers::Customers::create(&file).unwrap();
    let server = serve(customers::app(&store, rows).unwrap()).await;
    let mut client = Client::connect(server).await;
    // By turns, so that the quotas of 300 customers are in use at once.
    for round in 0..10_u64 {
        for customer in 1..=300_u64 {
            let (limit, key) = (3 + customer % 7, format!("customer-{customer}"));
            let answer = send(&mut client, Method::GET, "/", &[("x-api-key", &key)]).await;
            assert_eq!(answer.status(), if round < limit { OK } else { REFUSED }, "{key}, round {round}");
            assert_eq!(numbers(&answer)[..2], [limit, limit.saturating_sub(round + 1)]);
        }
    }
    let seventh = [("x-api-key", "customer-7")];
    for (limit, status) in [(3, REFUSED), (4, OK), (5, OK), (2, REFUSED)] {
        let changed = send(&mut client, Method::POST, &format!("/customers/7?limit={limit}"), &[]).await;
        assert_eq!(changed.status(), OK);
        // Under the old row it is refused, and spends nothing.
        let answer = loop {
            let answer = send(&mut client, Method::GET, "/", &seventh).await;
            if numbers(&answer)[0] == limit {
                break answer;
            }
        };
        assert_eq!(answer.status(), status, "{limit}");
    }
    for (method, path, key, expected) in [
        (Method::GET, "/", "customer-999", StatusCode::UNAUTHORIZED),
        (Method::GET, "/", "an invented one", StatusCode::UNAUTHORIZED),
        (Method::POST, "/customers/7?limit=0", "", StatusCode::BAD_REQUEST),
        (Method::POST, "/customers/301?limit=5", "", StatusCode::NOT_FOUND),
    ] {
        let answer = send(&mut client, method, path, &[("x-api-key", key)]).await;
        assert_eq!(answer.status(), expected, "{path} of {key}");
    }
    std::fs::remove_file(&file).unwrap();
}

const PROMPT: &str = "why is the sky blue?";

async fn complete(client: &mut Client, api_key: &str) -> Response<Incoming> {
    let request = Request::post("/complete").header("x-api-key", api_key);
    client.begin_with(request, PROMPT).await
}

/// The budget with a model of this pace, and what is left of the budget of the key "k".
async fn budget(pace: Duration) -> (SocketAddr, impl AsyncFn() -> u64) {
    let (store, _) = store();
    let server = serve(token_budget::app(&store, pace).unwrap()).await;
    (server, async move || {
        let tokens = Policy::token_bucket("tokens", "1000/min").on(&store).unwrap();
        let key = ApiKey::header("x-api-key").unwrap().key_of("k");
        tokens.peek(key).await.unwrap().remaining()
    })
}

#[tokio::test]
async fn a_request_reserves_261_tokens_and_keeps_ten() {
    let (server, left) = budget(Duration::ZERO).await;
    let mut client = Client::connect(server).await;
    for before in [1000, 990, 980] {
        assert_eq!(left().await, before);
        let answer = whole(complete(&mut client, "k").await).await;
        assert_eq!((answer.status(), numbers(&answer)[..2].to_vec()), (OK, vec![1000, before - 261]));
        assert_eq!(answer.body(), "WHY\nIS\nTHE\nSKY\nBLUE?\n");
    }
}

#[tokio::test]
async fn three_of_five_requests_at_once_fit_and_who_hangs_up_pays_for_what_was_said() {
    // No word is said before the test ends, so all that has to be paid is the prompt.
    let (server, left) = budget(Duration::from_secs(3_600)).await;
    let mut clients = Vec::new();
    for expected in [OK, OK, OK, REFUSED, REFUSED] {
        let mut client = Client::connect(server).await;
        let answer = complete(&mut client, "k").await;
        assert_eq!(answer.status(), expected);
        clients.push((client, answer));
    }
    assert_eq!(left().await, 1000 - 3 * 261);
    drop(clients);
    let settled = async {
        while left().await != 1000 - 3 * 5 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled).await.expect("the answers are settled");
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_asked_for_as_the_longest_and_costs_nothing() {
    let (server, left) = budget(Duration::ZERO).await;
    let mut client = Client::connect(server).await;
    let request = Request::post("/complete").header("x-api-key", "k");
    let answer = client.begin_with(request, "why ".repeat(5_000)).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(left().await, 1000);
}
