//! B35: what a token has to be for its subject to be a key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use http::request::Parts;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use sluicegate_core::Key;
use sluicegate_tower::key::{ApiKey, BearerJwt};
use sluicegate_tower::{KeyExtractor, PeerIp};

use super::parts::{address, anonymous, found, from};

const SECRET: &[u8] = b"a secret of 32 bytes, or of more";
const RSA: &[u8] = include_bytes!("keys/rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("keys/rsa_public.pem");
const EC: &[u8] = include_bytes!("keys/ec.pem");
const EC_PUBLIC: &[u8] = include_bytes!("keys/ec_public.pem");

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn hs256() -> BearerJwt {
    BearerJwt::hs256(SECRET).unwrap()
}

fn sign(header: &Header, claims: &Value, key: &EncodingKey) -> String {
    encode(header, claims, key).unwrap()
}

/// A token that is good but for its claims.
fn token(claims: &Value) -> String {
    sign(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET))
}

/// Ada's token, with other claims too, or instead.
fn ada(more: Value) -> String {
    let mut claims = json!({ "sub": "ada", "exp": now() + 3_600 });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    token(&claims)
}

fn bearing(token: &str) -> Parts {
    from("203.0.113.5", &[("authorization", &format!("Bearer {token}"))])
}

/// The token has no key, so that what stands in for it decides.
#[track_caller]
fn falls_through(why: &str, extractor: BearerJwt, token: &str) {
    let parts = bearing(token);
    let missing = found(&extractor, &parts).unwrap_err();
    assert_eq!(missing.reject(), None, "{why}");
    assert!(!missing.reason().contains("ada"), "{why}: {missing}");
    assert_eq!(found(&extractor.or(PeerIp::new()), &parts), Ok(address("203.0.113.5")), "{why}");
}

#[test]
fn a_verified_subject_is_a_key_whatever_the_token_looks_like() {
    let key = hs256().key_of("", "ada");
    for more in [json!({}), json!({ "iat": 1 }), json!({ "nbf": now() - 5, "exp": now() + 60 })] {
        assert_eq!(found(&hs256(), &bearing(&ada(more))), Ok(key.clone()));
    }
    assert_ne!(found(&hs256(), &bearing(&ada(json!({ "sub": "bob" })))), Ok(key.clone()));
    let shown = format!("{key:?} {:?}", hs256());
    assert!(!shown.contains("ada") && !shown.contains("secret"), "{shown}");
    assert!(!key.as_bytes().windows(3).any(|part| part == b"ada"));
}

#[test]
fn rs256_and_es256_tokens_are_verified_with_the_public_key() {
    let claims = json!({ "sub": "ada", "exp": now() + 60 });
    let rsa = sign(&Header::new(Algorithm::RS256), &claims, &EncodingKey::from_rsa_pem(RSA).unwrap());
    let ec = sign(&Header::new(Algorithm::ES256), &claims, &EncodingKey::from_ec_pem(EC).unwrap());
    let by_rsa = || BearerJwt::rs256(RSA_PUBLIC).unwrap();
    let by_ec = || BearerJwt::es256(EC_PUBLIC).unwrap();
    let key = Ok(hs256().key_of("", "ada"));
    assert_eq!(found(&by_rsa(), &bearing(&rsa)), key);
    assert_eq!(found(&by_ec(), &bearing(&ec)), key);
    assert_eq!(found(&by_rsa().or(by_ec()), &bearing(&ec)), key, "one of several keys is enough");
    falls_through("another algorithm", by_rsa(), &ec);
    falls_through("another algorithm", by_ec(), &rsa);
    falls_through("another algorithm", hs256(), &rsa);
}

#[test]
fn b35_a_token_that_is_not_signed_by_the_key_is_none() {
    let good = ada(json!({}));
    let [header, claims, signature]: [&str; 3] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let other = EncodingKey::from_secret(b"another secret of 32 bytes......");
    let body = json!({ "sub": "ada", "exp": now() + 60 });
    // {"alg":"none"} and {"alg":"None","typ":"JWT"}
    for none in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIiwidHlwIjoiSldUIn0"] {
        for signature in ["", signature] {
            falls_through("alg=none", hs256(), &format!("{none}.{claims}.{signature}"));
        }
    }
    falls_through("no signature", hs256(), &format!("{header}.{claims}."));
    falls_through("a signature too few", hs256(), &format!("{header}.{claims}"));
    falls_through("a cut signature", hs256(), &good[..good.len() - 2]);
    falls_through("another secret", hs256(), &sign(&Header::new(Algorithm::HS256), &body, &other));
    let bob = ada(json!({ "sub": "bob" }));
    let stolen = bob.split('.').nth(1).unwrap();
    falls_through("other claims", hs256(), &format!("{header}.{stolen}.{signature}"));
    // The public key is no secret, so it must not do as one.
    let confused = sign(&Header::new(Algorithm::HS256), &body, &EncodingKey::from_secret(RSA_PUBLIC));
    falls_through("HS256 with the public key", BearerJwt::rs256(RSA_PUBLIC).unwrap(), &confused);
    let mut critical = Header::new(Algorithm::HS256);
    critical.crit = Some(vec!["b64".into()]);
    falls_through("crit", hs256(), &sign(&critical, &body, &EncodingKey::from_secret(SECRET)));
    for garbage in ["", "x", "..", "a.b.c", "....", &"A".repeat(20_000)] {
        falls_through("garbage", hs256(), garbage);
    }
}

#[test]
fn b35_a_token_that_is_not_valid_now_is_none() {
    falls_through("expired", hs256(), &ada(json!({ "exp": now() - 3_600 })));
    falls_through("no expiry", hs256(), &token(&json!({ "sub": "ada" })));
    falls_through("not yet", hs256(), &ada(json!({ "nbf": now() + 3_600 })));
    for exp in [json!("soon"), json!(null), json!([now() + 60]), json!(-1), json!(1e300)] {
        falls_through("an expiry that is none", hs256(), &ada(json!({ "exp": exp })));
    }
    falls_through("a start that is none", hs256(), &ada(json!({ "nbf": "x" })));
    let skewed = ada(json!({ "exp": now() - 30 }));
    assert!(found(&hs256(), &bearing(&skewed)).is_ok(), "a minute's leeway is the default");
    falls_through("no leeway", hs256().leeway(Duration::ZERO).unwrap(), &skewed);
    let late = ada(json!({ "exp": now() - 600 }));
    assert!(found(&hs256().leeway(Duration::from_secs(3_600)).unwrap(), &bearing(&late)).is_ok());
    let message = hs256().leeway(Duration::from_secs(3_601)).unwrap_err().to_string();
    assert!(message.contains("3601s") && message.contains("at most an hour"), "{message}");
}

#[test]
fn b35_a_token_without_a_subject_that_is_a_text_is_none() {
    falls_through("no sub", hs256(), &token(&json!({ "exp": now() + 60 })));
    for sub in [json!(7), json!(["ada"]), json!({ "ada": 1 }), json!(null), json!(true), json!("")] {
        falls_through("sub", hs256(), &ada(json!({ "sub": sub })));
    }
    falls_through("10 KiB", hs256(), &ada(json!({ "sub": "a".repeat(10 * 1_024) })));
    assert!(found(&hs256(), &bearing(&ada(json!({ "sub": "a".repeat(8 * 1_024) })))).is_ok());
}

#[test]
fn issuer_and_audience_are_required_where_they_are_set() {
    let strict = || hs256().issuer("login").issuer("sso").audience("shop").audience("api");
    for (iss, aud) in [(json!("login"), json!("shop")), (json!("sso"), json!(["other", "api"]))] {
        let parts = bearing(&ada(json!({ "iss": iss, "aud": aud })));
        assert!(found(&strict(), &parts).is_ok(), "{iss} {aud}");
    }
    for more in [
        json!({}),
        json!({ "iss": "login" }),
        json!({ "aud": "shop" }),
        json!({ "iss": "evil", "aud": "shop" }),
        json!({ "iss": "login", "aud": "other" }),
        json!({ "iss": 7, "aud": "shop" }),
        json!({ "iss": "login", "aud": [] }),
        json!({ "iss": "login", "aud": 7 }),
    ] {
        falls_through(&more.to_string(), strict(), &ada(more.clone()));
    }
    falls_through("for somebody else", hs256(), &ada(json!({ "aud": "other" })));
}

#[test]
fn subjects_of_different_issuers_and_different_claims_do_not_meet() {
    let of = |more: Value| found(&hs256(), &bearing(&ada(more))).unwrap();
    let keys = [
        of(json!({})),
        of(json!({ "iss": "login" })),
        of(json!({ "iss": "sso" })),
        of(json!({ "iss": "loginada", "sub": "x" })),
        of(json!({ "iss": "login", "sub": "adax" })),
        found(&hs256().claim("tenant"), &bearing(&ada(json!({ "tenant": "ada" })))).unwrap(),
        ApiKey::header("x-api-key").unwrap().key_of("ada"),
        Key::from("ada"),
    ];
    for (i, a) in keys.iter().enumerate() {
        assert!(keys[..i].iter().all(|b| a != b), "{i}");
    }
    assert_eq!(keys[1], hs256().key_of("login", "ada"));
}

#[test]
fn a_plan_comes_from_verified_claims_only() {
    let claims = hs256()
        .verify(&bearing(&ada(json!({ "plan": "pro", "seats": 5, "roles": ["admin", 7, "dev"] }))))
        .unwrap();
    assert_eq!(claims.text("plan"), Some("pro"));
    assert_eq!((claims.text("seats"), claims.number("seats")), (None, Some(5)));
    assert_eq!((claims.text("sub"), claims.text("nothing")), (Some("ada"), None));
    assert!(claims.texts("roles").eq(["admin", "dev"]) && claims.texts("plan").next().is_none());
    let forged = sign(
        &Header::new(Algorithm::HS256),
        &json!({ "sub": "ada", "plan": "pro", "exp": now() + 60 }),
        &EncodingKey::from_secret(b"guess"),
    );
    assert!(hs256().verify(&bearing(&forged)).is_err());
}

#[test]
fn token_else_api_key_else_address() {
    let api_key = ApiKey::header("x-api-key").unwrap();
    let key = hs256().or(api_key.clone()).or(PeerIp::new());
    let of = |headers: &[(&'static str, &str)]| found(&key, &from("203.0.113.5", headers));
    let good = format!("Bearer {}", ada(json!({})));
    let expired = format!("Bearer {}", ada(json!({ "exp": now() - 3_600 })));
    assert_eq!(of(&[("authorization", &good), ("x-api-key", "k1")]), Ok(hs256().key_of("", "ada")));
    assert_eq!(of(&[("authorization", &expired), ("x-api-key", "k1")]), Ok(api_key.key_of("k1")));
    assert_eq!(of(&[("authorization", &expired), ("x-api-key", " ")]), Ok(address("203.0.113.5")));
    assert_eq!(of(&[]), Ok(address("203.0.113.5")));
    let two = of(&[("authorization", &good), ("authorization", &expired)]).unwrap_err();
    assert_eq!(two.reject(), Some(StatusCode::BAD_REQUEST));
    assert!(found(&key, &anonymous(&[])).is_err());
}

#[test]
fn a_key_that_cannot_work_is_refused_where_it_is_given() {
    for (made, part) in [
        (BearerJwt::hs256(b"short"), "a secret of 5 bytes for HS256: use at least 32"),
        (BearerJwt::hs256(b""), "0 bytes"),
        (BearerJwt::rs256(b"no PEM"), "not an RSA public key in PEM"),
        (BearerJwt::rs256(EC_PUBLIC), "not an RSA public key in PEM"),
        (BearerJwt::es256(RSA_PUBLIC), "not an elliptic curve public key in PEM"),
    ] {
        let message = made.unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains("short"), "{message}");
    }
}
