//! Mistakes of the first hour that show when a program starts: each message in full, with what to write instead.

use std::fmt::Display;
use std::time::Duration;

use sluicegate::fleet::DenyCache;
use sluicegate::in_flight::InFlight;
use sluicegate::key::{ApiKey, HeaderKey};
use sluicegate::limits::Tiers;
use sluicegate::redis::RedisStore;
use sluicegate::{ClientIp, Limit, MemoryStore, Policy, Quota, RateLimitLayer};

fn told<T>(result: Result<T, impl Display>) -> String {
    match result {
        Ok(_) => "it is good".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_quota_that_is_none_says_why() {
    for (text, why) in [
        ("5", "there is no \"/\" or \"per\" between limit and period"),
        ("5rpm", "there is no \"/\" or \"per\" between limit and period"),
        ("unlimited", "there is no \"/\" or \"per\" between limit and period"),
        ("/min", "the limit \"\" is not a whole number"),
        ("-5/min", "the limit \"-5\" is not a whole number"),
        ("5.5/min", "the limit \"5.5\" is not a whole number: write 11/2min"),
        ("100x/min", "the limit \"100x\" is not a whole number"),
        ("1,000/min", "the limit \"1,000\" is not a whole number"),
        ("100 requests per minute", "the limit \"100 requests\" is not a whole number"),
        ("0/min", "the limit is 0, and must be at least 1 (to refuse everything, deny it)"),
        ("99999999999999999999/s", "the limit 99999999999999999999 is too large"),
        ("5/0s", "the period is 0, and must be at least 1"),
        ("5/1,5s", "\"1,5s\" is not a number with a unit, as 1.5s"),
        ("5/fortnight", "\"fortnight\" is not a unit of time (ns, us, ms, s, min, h, d or w)"),
        ("5/min/s", "\"min/s\" is not a unit of time (ns, us, ms, s, min, h, d or w)"),
        (
            "5/3months",
            "\"months\" is not a unit of time (ns, us, ms, s, min, h, d or w): 30d is a span, \"month\" a quota's period of the calendar",
        ),
        (
            "5/2years",
            "\"years\" is not a unit of time (ns, us, ms, s, min, h, d or w): 365d is a span, \"year\" a quota's period of the calendar",
        ),
        ("5/min bust 3", "\"bust 3\" after the unit of time is not understood"),
        ("5/s and 6/min", "\"and 6/min\" after the unit of time is not understood"),
        ("5/min burst", "the burst \"\" is not a whole number"),
        ("5/min burst 0", "the burst is 0, and must be at least 1"),
    ] {
        let full = format!(
            "policy \"api\": {text:?} is not a quota: {why}; write \"100/min\", \"10/s burst 20\", \"5 per minute\" or \"1000/1h\""
        );
        assert_eq!(told(Policy::gcra("api", text).build()), full);
    }
}

#[test]
fn each_policy_that_cannot_be_says_why() {
    const NAMES: &str = "use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', beginning with a letter or digit";
    let store = MemoryStore::new();
    let _api = Policy::gcra("api", "5/min").on(&store).unwrap();
    for (result, expected) in [
        (Policy::gcra("", "5/min").build(), format!("\"\" cannot be a policy name, because it is empty: {NAMES}")),
        (
            Policy::gcra("my api", "5/min").build(),
            format!(
                "\"my api\" cannot be a policy name, because ' ' would have to be escaped in headers, metrics or Redis keys: {NAMES}"
            ),
        ),
        (
            Policy::gcra("api", Quota::per_minute(0)).build(),
            "policy \"api\": the limit of 0/min is 0, and must be at least 1 (to refuse everything, deny it)".to_owned(),
        ),
        (
            Policy::gcra("api", Quota::new(5, Duration::ZERO)).build(),
            "policy \"api\": the period of a quota of 5 is 0, and must be at least 1 microsecond".to_owned(),
        ),
        (
            Policy::sliding_log("api", "5/min burst 9").build(),
            "policy \"api\": sliding-log does not support a burst, but the quota is 5/min burst 9: leave the burst out, or use a token bucket or GCRA".to_owned(),
        ),
        (
            Policy::gcra("api", "5/min").table_size(0).build(),
            "policy \"api\": it cannot have room for 0 keys: use 1 to 2147483648".to_owned(),
        ),
        (
            Policy::gcra("api", "5/min").suspend(5, "an hour", "1h").build(),
            "policy \"api\": \"an hour\" is not a time: it does not begin with a number; write \"5s\", \"500ms\" or \"1h\"".to_owned(),
        ),
    ] {
        assert_eq!(told(result), expected);
    }
    assert_eq!(
        told(Policy::gcra("api", "6/min").on(&store)),
        "policy \"api\": the name is taken on this store by another policy (api: 5/min (gcra)): give this one (api: 6/min (gcra)) another name, or replace that one"
    );
    assert_eq!(
        told(Policy::sliding_log("log", "1000000/min").on(&store)),
        "policy \"log\": it needs a log of 1000000 entries per key, and this store has room for 16384: build it with log_entries(16000000), give it a resolution, or use a sliding counter"
    );
    assert_eq!(
        told(MemoryStore::builder().table_size(0).build()),
        "a memory store cannot have room for 0 keys: use 1 to 2147483648"
    );
    assert_eq!(
        told(DenyCache::builder(MemoryStore::new()).keys(0).build()),
        "a cache for 0 keys: use at least 1 and at most 2147483648"
    );
}

#[test]
fn each_limit_that_cannot_be_says_why() {
    let store = MemoryStore::new();
    let api = Policy::gcra("api", "5/min").on(&store).unwrap();
    assert_eq!(
        told(Limit::new(api.clone()).cost(0)),
        "a cost of 0 would let every request pass policy \"api\": use at least 1"
    );
    assert_eq!(
        told(Limit::new(api.clone()).cost(9)),
        "cost 9 is above burst 5 of 5/min in policy \"api\": no request would ever pass; lower the cost, or raise the limit or its burst"
    );
    assert_eq!(
        told(RateLimitLayer::builder(api.clone()).and(api.clone()).build()),
        "policy \"api\" is there twice: a request would spend from it twice, and headers could not tell which is which; for a second key, give the second limit a policy with a name of its own"
    );
    let elsewhere = Policy::gcra("elsewhere", "5/min").on(MemoryStore::new()).unwrap();
    assert_eq!(
        told(RateLimitLayer::builder(api).and(elsewhere).build()),
        "policies \"api\" and \"elsewhere\" are on different stores, so they cannot be decided together: put them on one store, or into two layers"
    );
    let plans = Policy::gcra("plans", "5/min").on(&store).unwrap();
    let free = || Tiers::builder(&plans).tier("free", "5/min");
    assert_eq!(
        told(free().build()),
        "nothing is said of requests whose tier is not known: use `default_tier` with one of \"free\", or `reject_unknown`"
    );
    assert_eq!(
        told(free().default_tier("pro").build()),
        "the default tier \"pro\" is not among the tiers: \"free\""
    );
    assert_eq!(
        told(Tiers::builder(&plans).build()),
        "tiers without a quota limit nothing: add one with `tier`"
    );
    assert_eq!(told(InFlight::new("uploads", 0)), "\"uploads\" cannot have 0 permits: use 1 to 1000000");
}

#[test]
fn each_key_and_server_that_cannot_be_says_why() {
    for (network, why) in [
        (
            "*",
            "\"*\" is not a network: write an address and the bits that count, up to 32 for IPv4 and 128 for IPv6, like \"10.0.0.0/8\" or \"2001:db8::/32\"",
        ),
        (
            "localhost",
            "\"localhost\" is not a network: write an address and the bits that count, up to 32 for IPv4 and 128 for IPv6, like \"10.0.0.0/8\" or \"2001:db8::/32\"",
        ),
        (
            "0.0.0.0/0",
            "0.0.0.0/0 would let every client choose its address: name the networks of the proxies, or use ClientIp::insecure_behind_anyone()",
        ),
    ] {
        assert_eq!(told(ClientIp::behind(network)), why);
    }
    assert_eq!(told(ClientIp::behind([""; 0])), "no proxies are named: use PeerIp where there are none");
    assert_eq!(told(ClientIp::hops(0)), "0 proxies in front: use 1 to 32, or PeerIp where there are none");
    assert_eq!(
        told(ClientIp::behind("10.0.0.9").unwrap().header("x-forwarded-for")),
        "x-forwarded-for holds a list: X-Forwarded-For is read by default, Forwarded after .forwarded()"
    );
    assert_eq!(
        told(HeaderKey::new("x user")),
        "\"x user\" cannot be the name of a header: use letters, digits and '-', like \"x-api-key\""
    );
    assert_eq!(
        told(ApiKey::header("X-Api-Key:")),
        "\"X-Api-Key:\" cannot be the name of a header: use letters, digits and '-', like \"x-api-key\""
    );
    for (url, why) in [
        ("localhost:6379", "there is no \"://\" in it"),
        ("http://localhost", "its scheme is not one of redis, rediss, unix, redis+sentinel, redis+cluster"),
        ("redis://", "it names no host"),
        ("redis://localhost:99999", "its port is not a number up to 65535"),
        ("redis://localhost/x", "its database is not a number"),
    ] {
        assert_eq!(
            told(RedisStore::connect(url)),
            format!(
                "{url:?} is not the URL of a Redis: {why}; write redis://host:6379/0, rediss://user:password@host, unix:///run/redis.sock, redis+sentinel://host:26379,host:26379/master or redis+cluster://host:7000,host:7001"
            )
        );
    }
}
