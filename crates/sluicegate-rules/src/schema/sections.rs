//! The sections about the store, the clients of a service, and requests under way at once.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::shapes::{EntryShape, Named, OneOrMany, TextOr, said};
use super::words;
use crate::at::At;

/// The store that keeps the counts: a Redis that all instances share, or this process.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "store")]
pub(crate) struct StoreEntry {
    /// The URL of a Redis that all instances share, as `${REDIS_URL}`.
    #[serde(default, deserialize_with = "said")]
    pub redis: Option<At<String>>,
    /// A secret that all instances share, as `${REDIS_SECRET}`: with it, a reader of Redis cannot test guesses at addresses and user names.
    /// Another secret starts all counts anew. Default: none.
    #[serde(default, deserialize_with = "said")]
    pub secret: Option<At<String>>,
    /// Counts in this process alone; each policy has room for this number of keys, as `1M keys`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub memory: Option<At<String>>,
    /// The longest that Redis may take for a request, from `1ms` to `1min`. Default: 50ms.
    #[serde(default, deserialize_with = "said")]
    pub deadline: Option<At<String>>,
    /// The number of instances of this service: while Redis is away, each admits its part. Default: 1.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub replicas: Option<At<String>>,
    /// Whether only a Redis is used that keeps its counts over a restart and while its memory is full: `appendonly yes`, and
    /// `maxmemory-policy noeviction`. Default: false.
    #[serde(default, deserialize_with = "said")]
    pub durable: Option<At<bool>>,
    /// Stores around Redis that save calls to it: `leases`, `deny-cache`, or both as a list. Default: none.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::fleet")]
    pub fleet: Option<At<OneOrMany>>,
}

/// The way to find the address of a client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "clients")]
pub(crate) struct Clients {
    /// The networks of the proxies that are trusted, as `10.0.0.0/8`.
    #[serde(default, deserialize_with = "said")]
    pub proxies: Option<At<OneOrMany>>,
    /// The number of proxies that each request passes.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub hops: Option<At<String>>,
    /// The field in which proxies say whom they forward for: `x-forwarded-for`, `forwarded`, or one with an address alone.
    #[serde(default, deserialize_with = "said")]
    pub header: Option<At<String>>,
    /// The bits of an IPv6 address that are one client. Default: 64.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub ipv6_prefix: Option<At<String>>,
    /// Whether an address in `64:ff9b::/96` is the IPv4 address inside it, for servers behind a NAT64 gateway. Default: `false`.
    #[serde(default, deserialize_with = "said")]
    pub nat64: Option<At<bool>>,
}

/// The way in which the service behind reads paths. Default: a denial ignores case and a slash at the end; a rule and an exemption do not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "paths")]
pub(crate) struct PathsEntry {
    /// `ignore` where `/LOGIN` is served as `/login`; `keep` where it is not, also for denials.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::ignore_or_keep")]
    pub case: Option<At<String>>,
    /// `ignore` where `/login/` is served as `/login`; `keep` where it is not, also for denials.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::ignore_or_keep")]
    pub trailing_slash: Option<At<String>>,
}

/// The verification of JSON Web Tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "jwt")]
pub(crate) struct Jwt {
    /// The shared secret of HS256, as `${JWT_SECRET}`.
    #[serde(default, deserialize_with = "said")]
    pub hs256: Option<At<String>>,
    /// A file with the public key of RS256 or ES256, in PEM; relative to the rules file.
    #[serde(default, deserialize_with = "said")]
    pub public_key_file: Option<At<String>>,
    /// The audience that tokens must name.
    #[serde(default, deserialize_with = "said")]
    pub audience: Option<At<String>>,
    /// The issuer that tokens must name.
    #[serde(default, deserialize_with = "said")]
    pub issuer: Option<At<String>>,
}

/// The API keys that are known. A key that is not listed counts as missing, so that a client gains nothing by inventing some.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "api_keys")]
pub(crate) struct ApiKeysEntry {
    /// The header field in which clients send their key.
    pub header: At<String>,
    /// A file with a line for each key: its sha256 in hexadecimal, and its tier, as `2cf2…9824: pro`, or its quotas, as
    /// `2cf2…9824: { tier: pro, quota: 500/min }`; relative to the rules file.
    pub file: At<String>,
}

/// The settings of a waiting room, for a policy with `on_exceeded: room`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "room")]
pub(crate) struct RoomEntry {
    /// The moment when it opens, as `2026-11-27T12:00:00Z`; visitors that come before are drawn by lot. Default: it is open.
    #[serde(default, deserialize_with = "said")]
    pub opens_at: Option<At<String>>,
    /// The most visitors that may be inside at once. Default: no bound but the rate.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub most_active: Option<At<String>>,
    /// The longest that a visitor that was let in may stay, as `30min`. Default: 15min.
    #[serde(default, deserialize_with = "said")]
    pub pass_lasts: Option<At<String>>,
    /// The most visitors that may wait; the next one is told that the room is full. Default: 1,000,000.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub longest_line: Option<At<String>>,
    /// The most places in the line that one client may have, by the `key` of the rule; 2 is the least to recommend. Default: any number.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub places_per_client: Option<At<String>>,
}

/// A limit on the requests that are under way at once: of a key (`permits`), or as many as the service can bear (`adaptive`), which each
/// instance finds out by itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "in_flight")]
pub(crate) struct InFlightEntry {
    /// The most requests at once, for each key, in each instance of the service, or in all of them if it is `shared`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub permits: Option<At<String>>,
    /// Whether all instances have `permits` together, by the store. Default: `false`.
    #[serde(default, deserialize_with = "said")]
    pub shared: Option<At<bool>>,
    /// The time after which the permits of an instance that has crashed are back, from `1s` to `1h`, where they are `shared`. Default: 15s.
    #[serde(default, deserialize_with = "said")]
    pub lease: Option<At<String>>,
    /// What happens while the store cannot be reached, where permits are `shared`: `local` (each instance has its part, by `replicas` of
    /// the store), `allow` or `deny`. Default: `local`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_outage")]
    pub on_outage: Option<At<String>>,
    /// The algorithm by which the number of all requests at once follows what the service can bear: `gradient` (the default of the library) or `aimd`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::limit_algorithm")]
    pub adaptive: Option<At<String>>,
    /// The smallest number at once. Default: 1, and with `gradient` a quarter of the highest number that was fine.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub at_least: Option<At<String>>,
    /// The largest number at once. Default: 1,000.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub at_most: Option<At<String>>,
    /// The number at once before anything is known. Default: 20.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::number")]
    pub first: Option<At<String>>,
    /// An answer that takes longer shows that the service has too much to do. Default: it does not.
    #[serde(default, deserialize_with = "said")]
    pub timeout: Option<At<String>>,
    /// Whether keys share what there is in equal parts. Default: `false`.
    #[serde(default, deserialize_with = "said")]
    pub fair: Option<At<bool>>,
    /// The parts that classes are given before others, in percent: `{ sheddable: 10 }`.
    #[serde(default)]
    pub guarantee: Named<At<String>>,
    /// `enforce`, `shadow` (refusals are only counted) or `off`. Default: `enforce`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::mode")]
    pub mode: Option<At<String>>,
    /// The answer to one request more: `deny`, or the longest wait as `wait 10s`. Default: `deny`; with `adaptive` `wait 100ms`.
    #[serde(default, deserialize_with = "said")]
    #[schemars(schema_with = "words::on_exceeded")]
    pub on_exceeded: Option<At<String>>,
}

/// A limit on the requests that are under way at once, or its number of permits alone.
pub(crate) type AtOnceEntry = TextOr<InFlightEntry>;

impl EntryShape for InFlightEntry {
    const EXPECTED: &'static str = "a number of permits, or { permits, .. }, or { adaptive, .. }";
}

impl JsonSchema for AtOnceEntry {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "at_once".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let entry = generator.subschema_for::<InFlightEntry>();
        json_schema!({ "anyOf": [{ "type": ["integer", "string"] }, entry] })
    }
}
