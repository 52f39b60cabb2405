//! The sections about the store, the clients of a service, and requests under way at once.

use schemars::json_schema;

use super::shapes::{EntryShape, Named, OneOrMany, TextOr};
use super::words;
use crate::at::At;

entry! {
    /// The store that keeps the counts: a Redis that all instances share, or this process.
    StoreEntry as "store":
    /// The URL of a Redis that all instances share, as `${REDIS_URL}`.
    redis?: At<String>,
    /// A secret that all instances share, as `${REDIS_SECRET}`: with it, a reader of Redis cannot test guesses at addresses and user names.
    /// Another secret starts all counts anew. Default: none.
    secret?: At<String>,
    /// Counts in this process alone; each policy has room for this number of keys, as `1M keys`.
    memory?: At<String> = "words::number",
    /// The longest that Redis may take for a request, from `1ms` to `1min`. Default: 50ms.
    deadline?: At<String>,
    /// The number of instances of this service: while Redis is away, each admits its part. Default: 1.
    replicas?: At<String> = "words::number",
    /// Whether only a Redis is used that keeps its counts over a restart and while its memory is full: `appendonly yes`, and
    /// `maxmemory-policy noeviction`. Default: false.
    durable?: At<bool>,
    /// Stores around Redis that save calls to it: `leases`, `deny-cache`, or both as a list. Default: none.
    fleet?: At<OneOrMany> = "words::fleet",
}

entry! {
    /// The way to find the address of a client.
    Clients as "clients":
    /// The networks of the proxies that are trusted, as `10.0.0.0/8`.
    proxies?: At<OneOrMany>,
    /// The number of proxies that each request passes.
    hops?: At<String> = "words::number",
    /// The field in which proxies say whom they forward for: `x-forwarded-for`, `forwarded`, or one with an address alone.
    header?: At<String>,
    /// The bits of an IPv6 address that are one client. Default: 64.
    ipv6_prefix?: At<String> = "words::number",
    /// Whether an address in `64:ff9b::/96` is the IPv4 address inside it, for servers behind a NAT64 gateway. Default: `false`.
    nat64?: At<bool>,
}

entry! {
    /// The way in which the service behind reads paths. Default: a denial ignores case and a slash at the end; a rule and an exemption do not.
    PathsEntry as "paths":
    /// `ignore` where `/LOGIN` is served as `/login`; `keep` where it is not, also for denials.
    case?: At<String> = "words::ignore_or_keep",
    /// `ignore` where `/login/` is served as `/login`; `keep` where it is not, also for denials.
    trailing_slash?: At<String> = "words::ignore_or_keep",
}

entry! {
    /// The verification of JSON Web Tokens.
    Jwt as "jwt":
    /// The shared secret of HS256, as `${JWT_SECRET}`.
    hs256?: At<String>,
    /// A file with the public key of RS256 or ES256, in PEM; relative to the rules file.
    public_key_file?: At<String>,
    /// The audience that tokens must name.
    audience?: At<String>,
    /// The issuer that tokens must name.
    issuer?: At<String>,
}

entry! {
    /// The API keys that are known. A key that is not listed counts as missing, so that a client gains nothing by inventing some.
    ApiKeysEntry as "api_keys":
    /// The header field in which clients send their key.
    header: At<String>,
    /// A file with a line for each key: its sha256 in hexadecimal, and its tier, as `2cf2…9824: pro`, or its quotas, as
    /// `2cf2…9824: { tier: pro, quota: 500/min }`; relative to the rules file.
    file: At<String>,
}

entry! {
    /// The settings of a waiting room, for a policy with `on_exceeded: room`.
    RoomEntry as "room":
    /// The moment when it opens, as `2026-11-27T12:00:00Z`; visitors that come before are drawn by lot. Default: it is open.
    opens_at?: At<String>,
    /// The most visitors that may be inside at once. Default: no bound but the rate.
    most_active?: At<String> = "words::number",
    /// The longest that a visitor that was let in may stay, as `30min`. Default: 15min.
    pass_lasts?: At<String>,
    /// The most visitors that may wait; the next one is told that the room is full. Default: 1,000,000.
    longest_line?: At<String> = "words::number",
    /// The most places in the line that one client may have, by the `key` of the rule; 2 is the least to recommend. Default: any number.
    places_per_client?: At<String> = "words::number",
}

entry! {
    /// A limit on the requests that are under way at once: of a key (`permits`), or as many as the service can bear (`adaptive`), which each
    /// instance finds out by itself.
    #[derive(Default)]
    InFlightEntry as "in_flight":
    /// The most requests at once, for each key, in each instance of the service, or in all of them if it is `shared`.
    permits?: At<String> = "words::number",
    /// Whether all instances have `permits` together, by the store. Default: `false`.
    shared?: At<bool>,
    /// The time after which the permits of an instance that has crashed are back, from `1s` to `1h`, where they are `shared`. Default: 15s.
    lease?: At<String>,
    /// What happens while the store cannot be reached, where permits are `shared`: `local` (each instance has its part, by `replicas` of
    /// the store), `allow` or `deny`. Default: `local`.
    on_outage?: At<String> = "words::on_outage",
    /// The algorithm by which the number of all requests at once follows what the service can bear: `gradient` (the default of the library) or `aimd`.
    adaptive?: At<String> = "words::limit_algorithm",
    /// The smallest number at once. Default: 1, and with `gradient` a quarter of the highest number that was fine.
    at_least?: At<String> = "words::number",
    /// The largest number at once. Default: 1,000.
    at_most?: At<String> = "words::number",
    /// The number at once before anything is known. Default: 20.
    first?: At<String> = "words::number",
    /// An answer that takes longer shows that the service has too much to do. Default: it does not.
    timeout?: At<String>,
    /// Whether keys share what there is in equal parts. Default: `false`.
    fair?: At<bool>,
    /// The parts that classes are given before others, in percent: `{ sheddable: 10 }`.
    guarantee[]: Named<At<String>>,
    /// `enforce`, `shadow` (refusals are only counted) or `off`. Default: `enforce`.
    mode?: At<String> = "words::mode",
    /// The answer to one request more: `deny`, or the longest wait as `wait 10s`. Default: `deny`; with `adaptive` `wait 100ms`.
    on_exceeded?: At<String> = "words::on_exceeded",
}

/// A limit on the requests that are under way at once, or its number of permits alone.
pub(crate) type AtOnceEntry = TextOr<InFlightEntry>;

impl EntryShape for InFlightEntry {
    const EXPECTED: &'static str = "a number of permits, or { permits, .. }, or { adaptive, .. }";
}

schema!(AtOnceEntry as "at_once", |generator| {
    let entry = generator.subschema_for::<InFlightEntry>();
    json_schema!({ "anyOf": [{ "type": ["integer", "string"] }, entry] })
});
