//! The places where a response tells its cost.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use sluicegate_core::Policy;
use sluicegate_tests::frames::{Frames, data};
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::settle::{Prices, Reserve, Settle};
use tower::{Layer, ServiceExt};

use crate::settle::{answering, named, read, respond, sent, tokens, used};
use crate::support::{all_fields, by_header, number, on, store};

const ANSWER: &str = r#"{"id": "1", "choices": [{"text": "{\"usage\": 9}"}], "usage": {"prompt_tokens": 20, "completion_tokens": 30, "total_tokens": 50}}"#;

#[tokio::test]
async fn the_number_in_a_header_settles_before_the_response_shows_what_is_left() {
    for (cost, left) in [("320", 9_680), ("0", 10_000), ("1500", 8_500)] {
        let (limiter, limit, _) = tokens(Settle::header("x-tokens-used").unwrap());
        let layer = all_fields(limit).build().unwrap();
        let make =
            move || Response::builder().header("x-tokens-used", cost).body(Frames::from("ok")).unwrap();
        // No body has to be read for it.
        let response: Response<Frames> = sent(layer.layer(answering(make))).await;
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left));
        assert_eq!(used(&limiter), 10_000 - left);
    }
}

#[tokio::test]
async fn a_field_of_the_body_settles_with_its_end_wherever_it_is_cut() {
    for cut in 0..=ANSWER.len() {
        let (limiter, limit, _) = tokens(Settle::json("usage.total_tokens").unwrap());
        let make = move || Response::new(Frames::new([data(&ANSWER[..cut]), data(&ANSWER[cut..])]));
        let mut body = respond(limit, make).await.into_body();
        for piece in [&ANSWER[..cut], &ANSWER[cut..]] {
            assert_eq!(
                body.frame().await.unwrap().unwrap().into_data().unwrap(),
                piece,
                "passed on as it came"
            );
            assert_eq!(used(&limiter), 500, "the response may go on");
        }
        assert!(body.frame().await.is_none());
        assert_eq!(used(&limiter), 50, "it is over, and is still there");
    }
}

#[tokio::test]
async fn fields_cost_their_prices() {
    let prices = [("usage.prompt_tokens", 1), ("usage.completion_tokens", 4), ("usage.cached_tokens", 9)];
    let (limiter, limit, _) = tokens(Settle::json(prices).unwrap());
    read(respond(limit, || Response::new(ANSWER.into())).await).await;
    assert_eq!(used(&limiter), 20 + 4 * 30);
}

/// Tokens from a cache are within those of the prompt, and cost less; a sum below 0 gives nothing back.
#[tokio::test]
async fn prices_below_zero_are_subtracted_down_to_zero() {
    for (prices, cost) in [
        ([("usage.prompt_tokens", 2), ("usage.completion_tokens", -1)], 2 * 20 - 30),
        ([("usage.prompt_tokens", 1), ("usage.completion_tokens", -1)], 0),
    ] {
        let (limiter, limit, _) = tokens(Settle::json(prices).unwrap());
        read(respond(limit, || Response::new(ANSWER.into())).await).await;
        assert_eq!(used(&limiter), cost, "{prices:?}");
    }
}

/// Ollama writes an object on each line, and Gemini a list of objects.
#[tokio::test]
async fn of_lines_and_of_a_list_the_last_object_that_has_the_field_counts() {
    for body in [
        "{\"response\":\"a\",\"done\":false}\n{\"done\":true,\"usage\":{\"total_tokens\":42.0}}\n",
        "[{\"usage\":{\"total_tokens\":7}},\n{\"usage\":{\"total_tokens\":42}}]",
    ] {
        let (limiter, limit, _) = tokens(Settle::json("usage.total_tokens").unwrap());
        read(respond(limit, || Response::new(body.into())).await).await;
        assert_eq!(used(&limiter), 42, "{body}");
    }
}

#[tokio::test]
async fn of_a_stream_of_events_the_last_that_has_the_field_counts() {
    const EVENTS: [&str; 5] = [
        "data: {\"usage\": null}\n\n",
        "data: {\"usage\": {\"total_tokens\": 7}}\n\ndata: {\"usage\": {\"total_",
        "tokens\": 42}}\r\n\r\n",
        "data: {\"choices\": []}\n\n",
        "data: [DONE]\n\n",
    ];
    let (limiter, limit, _) = tokens(Settle::sse("usage.total_tokens").unwrap());
    let (bytes, _) = read(respond(limit, || Response::new(Frames::new(EVENTS.map(data)))).await).await;
    assert_eq!((bytes, used(&limiter)), (Bytes::from(EVENTS.concat()), 42));
}

#[tokio::test]
async fn trailers_settle_and_are_passed_on() {
    let (limiter, limit, _) = tokens(Settle::trailer("x-tokens-used").unwrap());
    let trailers: HeaderMap = [("x-tokens-used", "77"), ("grpc-status", "0")]
        .map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap()))
        .into_iter()
        .collect();
    let expected = trailers.clone();
    let make = move || Response::new(Frames::new([data("message"), Ok(Frame::trailers(trailers.clone()))]));
    let (bytes, trailers) = read(respond(limit, make).await).await;
    assert_eq!((bytes, trailers), (Bytes::from("message"), Some(expected)));
    assert_eq!(used(&limiter), 77);
}

#[tokio::test]
async fn the_length_of_a_body_is_its_cost() {
    let (limiter, limit, _) = tokens(Settle::bytes());
    read(respond(limit, || Response::new(Frames::new([data("1234"), data(""), data("567890")]))).await).await;
    assert_eq!(used(&limiter), 10);
}

#[tokio::test]
async fn the_first_source_that_has_a_number_counts() {
    let settle = || {
        let (json, sse) = (Settle::json("n").unwrap(), Settle::sse("n").unwrap());
        json.or(sse).or(Settle::header("x-n").unwrap())
    };
    for (body, expected) in [("{\"n\": 1}", 1), ("data: {\"n\": 2}\n\n", 2), ("three", 3)] {
        let (limiter, limit, _) = tokens(settle());
        let make = move || Response::builder().header("x-n", "3").body(Frames::from(body)).unwrap();
        read(respond(limit, make).await).await;
        assert_eq!(used(&limiter), expected, "{body}");
    }
}

#[tokio::test]
async fn a_response_that_tells_no_cost_leaves_what_was_reserved() {
    for body in ["", "{}", "[[1], {\"n\": 1}]", "{\"n\": \"1\"}", "{\"n\": 1.5}", "{\"n\": -1}", "not json"] {
        let (limiter, limit, _) = tokens(Settle::json("n").unwrap());
        read(respond(limit, move || Response::new(body.into())).await).await;
        assert_eq!(used(&limiter), 500, "{body}");
    }
}

#[tokio::test]
async fn no_field_of_a_compressed_body_is_read_and_its_bytes_are_counted() {
    let (store, _) = store();
    let (tokens, by_field) = named(&store, "tokens", Settle::json("n").unwrap());
    let (traffic, by_bytes) = named(&store, "traffic", Settle::bytes());
    let layer = RateLimitLayer::builder(by_field).and(by_bytes).build().unwrap().settling();
    for (encoding, expected) in [("gzip", (500, 8)), ("identity, ", (501, 16))] {
        let make = move || {
            Response::builder().header("content-encoding", encoding).body(Frames::from("{\"n\": 1}")).unwrap()
        };
        read(sent(layer.layer(answering(make))).await).await;
        assert_eq!((used(&tokens), used(&traffic)), expected, "{encoding}");
    }
}

#[tokio::test]
async fn each_limit_of_a_request_settles_by_a_field_of_its_own() {
    let (store, _) = store();
    let requests = on(&store, Policy::fixed_window("requests", "10000/min"));
    let (prompts, by_prompt) = named(&store, "prompts", Settle::json("usage.prompt_tokens").unwrap());
    let (answers, by_answer) = named(&store, "answers", Settle::json("usage.completion_tokens").unwrap());
    let (traffic, by_bytes) = named(&store, "traffic", Settle::bytes());
    let layer = RateLimitLayer::builder(by_header(requests.clone()));
    let layer = layer.and(by_prompt).and(by_answer).and(by_bytes).build().unwrap().settling();
    for times in 1..=3 {
        read(sent(layer.layer(answering(|| Response::new(ANSWER.into())))).await).await;
        let all = [&requests, &prompts, &answers, &traffic].map(used);
        assert_eq!(all, [times, 20 * times, 30 * times, ANSWER.len() as u64 * times]);
    }
}

#[tokio::test]
async fn what_costs_more_than_its_reservation_is_a_debt_that_later_requests_pay_off() {
    let (store, clock) = store();
    let limiter = on(&store, Policy::token_bucket("tokens", "600/min"));
    let limit = by_header(limiter.clone()).cost(500).unwrap().settle(Settle::json("n").unwrap());
    let layer = RateLimitLayer::new(limit).settling();
    let service = layer.layer(answering(|| Response::new("{\"n\": 1300}".into())));
    read(sent(service.clone()).await).await;
    // 700 units of debt, and 500 for the next: 120 seconds at 10 a second.
    let refused: Response<_> = sent(service.clone()).await;
    assert_eq!((refused.status().as_u16(), number(&refused, "retry-after")), (429, Some(120)));
    clock.advance(std::time::Duration::from_secs(120));
    assert_eq!(sent(service).await.status(), 200);
}

#[tokio::test]
async fn a_request_says_what_it_reserves_within_the_bounds() {
    for (said, reserved) in [
        (Some("300"), 300),
        (Some("0"), 1),
        (Some("5000"), 2_000),
        (Some("99999999999999999999"), 2_000),
        (Some("300.0"), 300),
        (Some("3e2"), 300),
        (Some("many"), 2_000),
        (Some("-1"), 2_000),
        (None, 400),
    ] {
        let (store, _) = store();
        let limiter = on(&store, Policy::fixed_window("tokens", "10000/min"));
        let reserve = Reserve::header("x-max-tokens", 400).unwrap().at_most(2_000);
        let limit = by_header(limiter.clone()).reserve(reserve).settle(Settle::json("n").unwrap());
        let service =
            RateLimitLayer::new(limit).settling().layer(answering(|| Response::new("{\"n\": 7}".into())));
        let mut request = Request::get("/").header("x-key", "ada");
        if let Some(said) = said {
            request = request.header("x-max-tokens", said);
        }
        let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
        assert_eq!(used(&limiter), reserved, "{said:?}");
        read(response).await;
        assert_eq!(used(&limiter), 7);
    }
}

#[test]
fn a_source_that_cannot_be_one_is_an_error_with_its_name() {
    let prices = |fields: usize| (0..fields).map(|field| (format!("f{field}"), 1)).collect::<Prices>();
    for (error, expected) in [
        (Settle::header("x tokens"), "\"x tokens\" cannot be the name of a header"),
        (Settle::json(""), "the field \"\" has an empty name"),
        (Settle::json("usage..total"), "the field \"usage..total\" has an empty name"),
        (Settle::sse("choices[0].n"), "the field \"choices[0].n\" is not a list of names"),
        (Settle::json([("n", 0)]), "the price of field \"n\" is 0"),
        (Settle::json(prices(0)), "no field is named"),
        (Settle::json(prices(17)), "17 fields tell the cost: at most 16 fit"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Settle::json(prices(16)).is_ok());
    let long = "n".repeat(257);
    assert!(Settle::json(&*long).unwrap_err().to_string().contains("257 bytes: at most 256"));
}
