//! API keys, tokens and cookies: what is a key, what is none, and what of them can be read back.

use http::request::Parts;
use http::{HeaderValue, StatusCode};
use sluicegate_core::Key;
use sluicegate_tower::key::{ApiKey, Bearer, Cookie, HeaderKey, key_fn};
use sluicegate_tower::{KeyExtractor, PeerIp};

use super::parts::{address, anonymous, found, from};

fn api_key() -> ApiKey {
    ApiKey::header("X-Api-Key").unwrap()
}

fn x_api_key(value: &[u8]) -> Parts {
    let mut parts = anonymous(&[]);
    parts.headers.insert("x-api-key", HeaderValue::from_bytes(value).unwrap());
    parts
}

#[test]
fn b29_a_blank_api_key_is_a_missing_one_and_leaves_it_to_the_next() {
    for parts in [anonymous(&[]), x_api_key(b""), x_api_key(b" \t ")] {
        let missing = found(&api_key(), &parts).unwrap_err();
        assert_eq!((missing.reason(), missing.reject()), ("the header x-api-key is missing", None));
    }
    let blank = from("203.0.113.5", &[("x-api-key", " ")]);
    assert_eq!(found(&api_key().or(PeerIp::new()), &blank), Ok(address("203.0.113.5")));
}

#[test]
fn b30_oversized_values_share_one_bucket_that_nobody_else_has() {
    let large = |fill: u8, length: usize| x_api_key(&vec![fill; length]);
    for key in [&api_key() as &dyn KeyExtractor, &HeaderKey::new("x-api-key").unwrap()] {
        let found = |parts: &Parts| key.extract(parts.into()).now().unwrap().unwrap();
        let oversize = found(&large(b'a', 100 * 1_024));
        assert_eq!(oversize, found(&large(b'b', 8 * 1_024 + 1)));
        assert_ne!(oversize, found(&large(b'a', 8 * 1_024)));
        assert_ne!(oversize, found(&x_api_key(b"oversize")));
        assert_ne!(oversize, Key::shared());
    }
}

#[test]
fn b31_equal_bytes_are_equal_keys_and_nothing_of_them_is_left() {
    let values: [&[u8]; 9] =
        [b"k", b"K", b"k:{}*", b"k\t\"", "k\u{e4}".as_bytes(), b"k\xff", b"k\xfe", b"k%0d%0a", b"kk"];
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            let keys = [a, b].map(|value| found(&api_key(), &x_api_key(value)).unwrap());
            assert_eq!(keys[0] == keys[1], i == j, "{a:?} and {b:?}");
        }
    }
    let secret = b"sk_live_51Hqf4k2eZvKYlo2C";
    let key = found(&api_key(), &x_api_key(secret)).unwrap();
    let holds = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|window| window == part);
    assert!(!secret.windows(4).any(|part| holds(key.as_bytes(), part)));
    assert!(!format!("{key:?} {:?}", api_key()).contains("sk_live"));
    assert_eq!(key, api_key().key_of(secret), "an operator can find the bucket");
}

#[test]
fn b32_two_different_values_are_refused_and_nothing_stands_in_for_them() {
    for (extractor, header, one, other) in [
        (Box::new(api_key()) as Box<dyn KeyExtractor>, "x-api-key", "k1", "k2"),
        (Box::new(api_key()), "x-api-key", "k1", ""),
        (Box::new(Bearer::new()), "authorization", "Bearer k1", "Bearer k2"),
        (Box::new(Bearer::new()), "authorization", "Basic k1", "Bearer k1"),
    ] {
        let extractor = extractor.or(PeerIp::new());
        for [first, second] in [[one, other], [other, one]] {
            let missing =
                found(&extractor, &from("203.0.113.5", &[(header, first), (header, second)])).unwrap_err();
            assert_eq!(missing.reject(), Some(StatusCode::BAD_REQUEST));
            assert!(!missing.reason().contains("k1") && missing.reason().contains(header), "{missing}");
        }
        assert_eq!(
            found(&extractor, &from("203.0.113.5", &[(header, one), (header, one)])),
            found(&extractor, &from("203.0.113.5", &[(header, one)])),
            "twice the same is no contradiction"
        );
    }
}

#[test]
fn b33_parts_do_not_run_into_each_other() {
    let key = (HeaderKey::new("tenant").unwrap(), HeaderKey::new("user").unwrap());
    let of =
        |tenant: &str, user: &str| found(&key, &anonymous(&[("tenant", tenant), ("user", user)])).unwrap();
    let keys = [of("a_b", "c"), of("a", "b_c"), of("b_c", "a"), of("a", "b"), of("b", "a")];
    for (i, a) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|b| a != b));
    }
    assert_ne!(Key::from(("", "x")), Key::from(("x", "")));
    // A cookie's value is not an API key's, and not that of a cookie with another name.
    let cookies = ["a", "b"].map(|name| Cookie::new(name).unwrap().key_of("x"));
    assert_ne!(cookies[0], cookies[1]);
    assert_ne!(cookies[0], api_key().key_of("x"));
}

#[test]
fn b34_a_bearer_token_is_one_in_any_case_of_the_scheme_and_in_no_other_scheme() {
    let authorization = |value: &str| found(&Bearer::new(), &anonymous(&[("authorization", value)]));
    for good in ["Bearer x", "bearer x", "BEARER  x", "Bearer x "] {
        assert_eq!(authorization(good), Ok(Bearer::new().key_of("x")), "{good}");
    }
    assert_ne!(authorization("Bearer X"), authorization("Bearer x"));
    let fallback = Bearer::new().or(PeerIp::new());
    for bad in ["Basic x", "Bearer", "Bearer ", "Bearerx", "Bearer x y", "Bearer \"x\"", "x", ""] {
        assert_eq!(authorization(bad).unwrap_err().reason(), "the request has no bearer token", "{bad}");
        let parts = from("203.0.113.5", &[("authorization", bad)]);
        assert_eq!(found(&fallback, &parts), Ok(address("203.0.113.5")), "{bad}");
    }
    assert_eq!(
        Bearer::new().key_of("x"),
        api_key().key_of("x"),
        "a secret has one bucket, wherever it is shown"
    );
}

#[test]
fn a_session_has_one_bucket_however_its_cookie_is_spelled() {
    // axum's cookie jar decodes names and values; other frameworks take off quotes.
    let session = Cookie::new("session").unwrap();
    for spelled in [
        "session=a+b%z",
        "session=%61+b%z",
        "session=a%2Bb%z",
        "session=a%2bb%25z",
        "session=%2561+b%25%7a",
        "session=\"a+b%z\"",
        "session=%22a+b%z%22",
        "%73ession=a+b%z",
        "session=a+b%z; session=%61+b%z",
    ] {
        let request = from("203.0.113.5", &[("cookie", spelled)]);
        assert_eq!(found(&session, &request), Ok(session.key_of("a+b%z")), "{spelled}");
    }
    assert_eq!(session.key_of("a%2Bb"), session.key_of("a+b"));
    assert_ne!(session.key_of("a%2"), session.key_of("a%"));
}

#[test]
fn b36_a_cookie_is_found_by_its_name() {
    let session = Cookie::new("session").unwrap();
    let of = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
        found(&session, &from("203.0.113.5", &lines))
    };
    for lines in [
        &["session=s1"][..],
        &["a=b; session=s1; session=s1"],
        &["a=b", "session=s1", "session=s1"],
        &["session2=x;session=s1"],
        &["Session=x; xsession=y; session = s1"],
    ] {
        assert_eq!(of(lines), Ok(session.key_of("s1")), "{lines:?}");
    }
    for lines in
        [&[][..], &[""], &["session"], &["session="], &["sessions=s1"], &["a=session=s1"], &["session=\"\""]]
    {
        assert_eq!(of(lines).unwrap_err().reason(), "the cookie session is missing", "{lines:?}");
    }
    // A framework that reads the last one would serve a client that invents a first one for each request.
    for lines in [
        &["a=b; session=s1; session=s2"][..],
        &["session=s1", "a=b", "session=s2"],
        &["session=; session=s1"],
        &["session=s1; %73ession=s2"],
    ] {
        assert_eq!(of(lines).unwrap_err().reject(), Some(StatusCode::BAD_REQUEST), "{lines:?}");
    }
    // One that reads the first one says so.
    let first = session.clone().first_of_several();
    let several = from("203.0.113.5", &[("cookie", "a=b; session=s1; session=s2")]);
    assert_eq!(found(&first, &several), Ok(session.key_of("s1")));
    let missing = from("203.0.113.5", &[("cookie", "a=b")]);
    assert_eq!(found(&session.or(PeerIp::new()), &missing), Ok(address("203.0.113.5")));
}

/// Skipping them instead would let a client hide its session, and be nobody, behind cookies that are of no use.
#[test]
fn a_request_with_more_cookies_than_are_looked_at_is_refused() {
    let session = Cookie::new("session").unwrap();
    let many = |cookies: usize| format!("session=s1{}", "; a=b".repeat(cookies - 1));
    let of = |extractor: &Cookie, line: &str| found(extractor, &from("203.0.113.5", &[("cookie", line)]));
    assert_eq!(of(&session, &many(512)), Ok(session.key_of("s1")));
    for extractor in [session.clone(), session.first_of_several()] {
        for line in [many(513), "a=b;".repeat(513)] {
            let refused = of(&extractor, &line).unwrap_err();
            assert_eq!(refused.reject(), Some(StatusCode::BAD_REQUEST));
            assert!(refused.reason().ends_with("send at most 512"), "{}", refused.reason());
        }
    }
}

/// An extractor that fails is one that finds nothing: the next one, or what the limit says, decides.
#[test]
fn b38_an_extractor_that_fails_leaves_it_to_the_next() {
    let failing = key_fn(|request| {
        let text = request.headers.get("x-user")?.to_str().ok()?;
        text.parse::<u64>().ok()
    });
    let key = failing.or(PeerIp::new());
    assert_eq!(found(&key, &from("203.0.113.5", &[("x-user", "7")])), Ok(7.into()));
    for bad in ["", "seven", "\u{ff}", "-1"] {
        assert_eq!(found(&key, &from("203.0.113.5", &[("x-user", bad)])), Ok(address("203.0.113.5")));
    }
}

#[test]
fn b39_what_looks_alike_is_not_alike() {
    let header = HeaderKey::new("x-api-key").unwrap();
    let alike = ["admin", "Admin", "\u{430}dmin", "admin\u{200b}", "a\u{300}dmin", "\u{e0}dmin"];
    for (i, a) in alike.iter().enumerate() {
        for b in &alike[..i] {
            for key in [&api_key() as &dyn KeyExtractor, &header] {
                let of =
                    |value: &str| key.extract((&x_api_key(value.as_bytes())).into()).now().unwrap().unwrap();
                assert_ne!(of(a), of(b), "{a:?} and {b:?}");
            }
        }
    }
}
