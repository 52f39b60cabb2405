//! Rate limits in a file: it says which limits apply to which requests, in the words that code uses.
//!
//! An operator changes the file, and the service follows without a deploy: a change takes effect as a whole and in one step.
//! A file with a mistake changes nothing, and the mistake is reported with line and column.
//!
//! ```
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! let file = RulesFile::parse("rules.yaml", r#"
//! version: 1
//! policies:
//!   login: { algorithm: sliding-log, quota: [5/min, 20/h], on_outage: deny }
//!   api: { quota: 100/min burst 20 }
//! exempt:
//!   - { name: open, only_if: { path: [/health, /assets/*] } }
//! rules:
//!   - { name: login, group: endpoint, only_if: { path: /login, method: POST }, limit: login, key: client, refund_if: 2xx }
//!   - { name: rest, group: endpoint, limit: api, key: client }
//! "#, &Variables::environment())?;
//!
//! let rules = Rules::new(&MemoryStore::new(), file)?;
//! let layer = rules.layer(); // for any tower stack
//! # let _ = layer;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a request is decided
//! 1. A matching rule under `deny` refuses it, whatever the other rules say.
//! 2. A matching rule under `exempt` exempts it from all limits.
//! 3. Every rule under `rules` that matches applies; of rules with the same `group`, only the first that matches. A request spends from all
//!    of their limits, or from none. If a rule names one of `in_flight`, its permit is taken before anything is spent; a waiting room comes
//!    before both.
//!
//! # Which requests a rule is about
//! All conditions under `only_if` must hold; one entry of a list is enough.
//!
//! | word | holds if |
//! |---|---|
//! | `path` | the path matches: `/login`, `/users/{id}`, `/assets/*`, `/api*`, `*.js`; see [below](#paths) |
//! | `method` | the method is one of these |
//! | `host` | the host of the request is one of these, written without port, or below a domain, as `*.example.org`: the host in the request's target, or in the field `Host` if the target names none. If a file has conditions on hosts, a request with two fields `Host`, or with one that is not text, is refused with 400 |
//! | `header`, `query` | each named field or parameter has this value: a text in which `*` stands for any text, as `"*bot*"`, `{ regex: "bot-[0-9]+" }`, a list of which one matches, or `{ present: false }` |
//! | `body` | each named field of the body, JSON or a form, has such a value, for example `{ model: large }`; see [below](#fields-of-bodies) |
//! | `client` | the address of the client is in one of these networks |
//! | `tier` | the request is in one of these tiers: `{ plan: [free, pro] }`, by the name under `tiers` |
//! | `domain`, `descriptor` | the request is a [descriptor of Envoy](#descriptors-of-envoy) with this domain and these entries |
//! | `not` | the inner condition does not hold |
//!
//! `{ regex: .. }` may stand for a path, a host, a value of a field, and a value of a descriptor's entry. It is an expression of the crate
//! `regex` without Unicode classes, which takes at most 64 KiB compiled; the whole text must match, as with `*`: write `.*` around a part.
//!
//! A request without a tier, or with an unlisted one, is in the default tier, for conditions and for limits. A key with quotas of
//! its own (`overrides`) stays in the tier of its plan.
//!
//! ```
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies:
//!   api: { quota: 100/min }
//!   export: { quota: 1/h }
//! tiers:
//!   plan: { policy: api, by: header(x-plan), tiers: { free: 100/min, pro: 1000/min }, default_tier: free }
//! rules:
//!   - { name: export, only_if: { path: /export, tier: { plan: free } }, limit: export, key: header(x-user) }
//!   - { name: all, limit: plan, key: header(x-user) }
//! ", &Variables::none())?;
//! let limits = Rules::new(&MemoryStore::new(), file)?.limits();
//!
//! let export = |plan| Request::get("/export").header("x-user", "ada").header("x-plan", plan).body(());
//! assert!(limits.decide(&export("free")?).await.is_ok());
//! assert!(limits.decide(&export("free")?).await.is_err(), "one an hour");
//! assert!(limits.decide(&export("pro")?).await.is_ok(), "only the plan limits it");
//! # Ok(())
//! # }
//! ```
//!
//! # Descriptors of Envoy
//! Envoy and its relatives ask a rate limit service about descriptors: a domain, and lists of entries such as `remote_address=192.0.2.7`, one list
//! for each limit. `sluicegate serve` answers them by these rules. A rule with `domain` or `descriptor` under `only_if` applies only to
//! descriptors, under `deny` and `exempt` too; the rules are applied to each descriptor of a call by itself.
//!
//! `descriptor` names entries of the descriptor, each with a value, a list of values, a pattern in which `*` stands for any text, or `{ present: false }`:
//!
//! | `descriptor` | matches |
//! |---|---|
//! | `[{ path: /upload }, { user: "*" }]` | exactly these entries, in the order of the proxy, as in Envoy's own server |
//! | `{ path: /upload, user: "*" }` | these among others, in any order, as in limitador |
//! | `{ path: /upload, user: "*", "*": { present: false } }` | exactly these, in any order |
//! | `[{ path: /upload }, { "*": "*" }]` | these first, and perhaps others behind them |
//!
//! `client` and `peer` are the address in the
//! entry `remote_address`; if a rule reads it and it is not an address, the descriptor is refused. The entry `path` is compared as the
//! path of a request is, without its query: `/login?a=b` and `//login` are `/login`, in keys too.
//!
//! | word | says |
//! |---|---|
//! | `key: descriptor` | a bucket for each domain with each combination of values, of those entries that the rule names if there may be others |
//! | `key: descriptor(user)` | a bucket for each value of that entry |
//! | `quota_by: descriptor` in a policy | the `limit` that the proxy sends with a descriptor is the quota of its key |
//! | `replaces: address` | the rule `address` applies to no descriptor of a call if this rule applies to one of them |
//!
//! A rule spends its `cost` for each hit. [`Descriptors`] has an example.
//!
//! # Fields of bodies
//! `only_if: { body: { model: large } }`, the key `body(model)` and `cost: { json: max_tokens, .. }` read fields of the request's JSON body,
//! or of a form (`application/x-www-form-urlencoded`); write nested names with dots. [`RulesLayer::reading_requests`] reads up to 256 KiB of a body before the request is
//! decided, for 5 seconds at most, and passes the body on unchanged. In a layer that reads no bodies, and in tools, all fields are missing; [`Rules::read_body`] gives a tool's body to the rules.
//!
//! A client must not choose whether a limit applies. A body that cannot be read, because it is compressed, neither JSON nor a form, too long or too slow,
//! may have any value in each field: all conditions of rules and denials on it hold, and those of exemptions do not; within a group it does not
//! keep later rules from applying, except from one policy twice; it costs `max`, and shares a bucket of keys by `body(..)`. So does a field that
//! is `null`, a list or an object. `on_unreadable_body: 415` refuses such requests with this status instead, where a rule
//! asks for the body, and `skip` takes their fields for missing.
//!
//! Clients write these fields: add a limit for all models to those for each model.
//!
//! # Paths
//! Patterns are those of [`path_in`](sluicegate_tower::limits::path_in): `{id}` is one segment, and `/files/*` or `/files/{*rest}` is everything
//! below: `/files/a`, `/files/a/b` and `/files/` itself, but not `/files`. Another `*` is any text at the end and in front, elsewhere any within
//! a segment, and `**` is any text: `/api*`, `*.js`, `/a/**/b`. Such patterns are compared with each request, the others are looked up. Paths are compared in their normal form: `//login`,
//! `/%6cogin` and `/login;x=1` are `/login`.
//!
//! A path with dots, such as `/a/../admin`, has two readings: as written and as resolved. A rule applies if all of its conditions hold in
//! one reading; within a group, the first rule of each reading applies. If these are two rules that may spend from one enforced policy, the
//! request is refused with 400.
//!
//! In doubt a request is limited. A rule under `deny` applies if any server may read the path as a match, ignoring case and a trailing slash;
//! a rule under `exempt` applies only if the path matches as written and in every other reading, and never to a path with dots.
//! Within `not` it is the other way round.
//!
//! `paths` says how the upstream reads paths; then all sections read them in the same way:
//!
//! | `paths` | for a service that |
//! |---|---|
//! | `case: ignore`, `case: keep` | serves `/LOGIN` as `/login`; tells them apart |
//! | `trailing_slash: ignore`, `trailing_slash: keep` | serves `/login/` as `/login`, and then `/files` is below `/files/*`; tells them apart |
//!
//! ```
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! paths: { trailing_slash: ignore }
//! policies: { login: { quota: 3/min } }
//! deny:
//!   - { name: inside, only_if: { path: /internal/* } }
//! rules:
//!   - { name: login, only_if: { path: /login }, limit: login, key: everybody }
//! ", &Variables::none())?;
//! let limits = Rules::new(&MemoryStore::new(), file)?.limits();
//!
//! for (path, passes) in [("/login", true), ("/login/", true), ("/login;x", true), ("//login", false), ("/INTERNAL/x", false)] {
//!     assert_eq!(limits.decide(&Request::get(path).body(())?).await.is_ok(), passes, "{path}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Whose bucket it is
//! `key` says where the key of a request is read; in a list, the first one that the request has counts. Keys that clients choose freely,
//! `header(name)` and `api_key(header)`, cause a warning unless a rule for all requests has the address as its key: a client that invents keys
//! gets a new bucket with each. If a proxy in front verifies or overwrites the field, write `verified_before(header(name))`.
//! `jwt(claim)` is verified, and an `api_key` that is not listed counts as missing.
//!
//! # How much, and what then: `policies`
//! A policy is a named budget; it limits nothing until a rule or a tier names it.
//!
//! | word | says | default |
//! |---|---|---|
//! | `quota` | `5/min`, `10/s burst 20`, `60/min burst 100 start 10`, or a list of quotas that all hold | |
//! | `quota_by`, `overrides` | which keys have [quotas of their own](#keys-with-quotas-of-their-own-quota_by-and-overrides) | none |
//! | `algorithm` | the algorithm, by the names of [`Algorithm`](sluicegate_core::Algorithm); a quota may name its own, as in `[100/min, 10000/d by token-bucket-aligned]` | `gcra` |
//! | `mode` | `enforce`, `shadow` (counts but refuses no request) or `off` | `enforce` |
//! | `status` | the status of refusals, unless the rule has a `status`; of several limits without room, the one with the longest wait decides | 429 |
//! | `on_exceeded` | `deny`, or a wait such as `wait 5s`; `room` makes it a [waiting room](#waiting-rooms-on_exceeded-room) | `deny` |
//! | `count_rejected` | `true` if refused requests spend too: a client that continues after a refusal has to pause | `false` |
//! | `suspend` | refuses a key outright if it continues after many refusals | never |
//! | `tighten` | another quota while its requests are unusual, on an observed store: `{ to: 3/min burst 10, for: 30min }`, `keys: new` for keys not seen before, `agreed_by: 2` instances that share a store, `shadow: true` to try it | an alarm only notifies |
//! | `on_outage` | `local`, `allow` or `deny` while the store is down, or a quota for each instance: `1000/s` | `local` |
//! | `hidden` | `true` if clients see no header fields of it | `false` |
//! | `table_size` | the number of keys that a store in memory has room for | the store's setting |
//!
//! ```
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_core::clock::ManualClock;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies:
//!   login: { algorithm: sliding-log, quota: 2/min, count_rejected: true }
//! rules:
//!   - { name: login, only_if: { path: /login }, limit: login, key: everybody }
//! ", &Variables::none())?;
//! let clock = ManualClock::new();
//! let limits = Rules::new(&MemoryStore::builder().clock(clock.clone()).build()?, file)?.limits();
//!
//! let login = Request::get("/login").body(())?;
//! let mut passed = 0;
//! for _ in 0..60 {
//!     passed += u32::from(limits.decide(&login).await.is_ok());
//!     clock.advance(Duration::from_secs(5));
//! }
//! assert_eq!(passed, 2, "in five minutes, because it never pauses for one");
//! # Ok(())
//! # }
//! ```
//!
//! # Keys with quotas of their own: `quota_by` and `overrides`
//! All keys of a policy use one algorithm, but some may have other quotas. `overrides` gives quotas to single keys, for example
//! `acme: 1000/min`: a key is named by its claim, header field or address, an API key by its sha256. `quota_by` says where a request
//! carries its quotas; in a list, the first one present counts:
//!
//! | word | the quotas are |
//! |---|---|
//! | `jwt(claim)` | a claim of a verified token |
//! | `api_key` | the `quota` of its line in the file of `api_keys`: `2cf2...9824: { tier: pro, quota: 500/min }` |
//! | `header(name)` | a header field, in requests from the `proxies` under `clients`, which have to replace it; in other requests it is not read |
//! | `descriptor` | the `limit` of a [descriptor](#descriptors-of-envoy) |
//!
//! Write `500/min burst 50`, a list or a comma-separated text with one quota for each of the policy's, or `unlimited`. A key
//! keeps its spent units when its quotas change, also by a reload. A request with unreadable quotas is refused with 500, and the
//! reason is logged. `share` takes its part of these quotas too. Each policy can have up to 65,535 different quotas of keys in use at once.
//!
//! ```
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! jwt:
//!   hs256: ${JWT_SECRET}
//! policies:
//!   api: { quota: 100/min, quota_by: jwt(quota), overrides: { acme: 1000/min burst 50, staff: unlimited } }
//! rules:
//!   - { name: all, limit: api, key: [jwt(sub), header(x-user)] }
//! ", &Variables::none().or_placeholders())?;
//! let rules = Rules::new(&MemoryStore::new(), file)?;
//!
//! for (user, asks) in [("ada", "api: 100/min (gcra)"), ("acme", "api: 1000/min burst 50 (gcra)")] {
//!     let request = Request::get("/").header("x-user", user).body(())?;
//!     let explained = rules.explain(&request).await;
//!     assert_eq!(explained.rules[0].limits[0].asks.clone()?.policy.to_string(), asks);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Tiers are quotas by name: `tiers: { plan: { policy: api, by: jwt(plan), tiers: { free: 100/min, pro: 1000/min, staff: unlimited },
//! default_tier: free } }` gives the keys of `api` the quotas of their tier. A key keeps its spent units when its tier changes, and a key with
//! quotas of its own has these in any tier. A tier may name a policy instead of quotas, to have other keys or another algorithm.
//!
//! # How much it costs: `cost`, `share`, `refund_if` and `settle`
//! A request spends `cost` units of each limit of its rule. Default: 1. If a header field gives the cost, a value that is not a number
//! costs `max`, and a request without the field costs `missing`; `{ json: max_tokens, .. }` does the same with a [field of the body](#fields-of-bodies).
//! `{ bytes: request, min: 1, max: 1_000_000 }` is the length of the body: [`RulesLayer::reading_requests`] reads a body whose length is not stated, and one of
//! more than 256 KiB costs `max`; without it, `Content-Length` states the length, and in doubt a request costs `max`. `min` and `missing` have to fit into each burst, and `check` warns about a
//! `max` that does not. `share: 1/10` gives a rule a part of a budget, as a policy of its own. `refund_if` gives the units back after
//! responses with these statuses.
//!
//! ```
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies:
//!   api: { quota: 100/min }
//! rules:
//!   - name: upload
//!     only_if: { path: /upload }
//!     limit: api
//!     share: 1/10
//!     key: everybody
//!     cost: { header: x-units, min: 1, max: 8, missing: 2 }
//!     refund_if: 5xx
//! ", &Variables::none())?;
//! let rules = Rules::new(&MemoryStore::new(), file)?;
//!
//! for (units, cost) in [("0", 1), ("5", 5), ("many", 8)] {
//!     let request = Request::post("/upload").header("x-units", units).body(())?;
//!     let explained = rules.explain(&request).await;
//!     let asks = explained.rules[0].limits[0].asks.clone()?;
//!     assert_eq!((asks.policy.name(), asks.cost), ("api.upload", cost));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `settle` says where the response states the true cost. A request then first spends `cost`, and the difference is given back or
//! charged; units that do not fit become a debt, and later requests are refused until it is paid off. Bodies are read as they pass.
//!
//! | `settle` | the cost is |
//! |---|---|
//! | `{ header: x-tokens-used }`, `{ trailer: x-tokens-used }` | the number in that field |
//! | `{ json: usage.total_tokens }` | that field of the JSON body; of a list of objects, or of an object on each line, the last one that has it |
//! | `{ sse: usage.total_tokens }` | that field in the data of server-sent events, taken from the last event that has it |
//! | `{ json: { usage.prompt_tokens: 1, usage.completion_tokens: 4 } }` | the sum of these fields, each at its price in units; a price below 0 is subtracted, down to 0 |
//! | `{ bytes: response }` | the length of the body |
//!
//! Several places may be named: the first of `header`, `trailer`, `json`, `sse` and `bytes` that has a number counts. If none has one, or
//! the body is compressed, the units spent at first stay spent. `on_abort` sets the cost of a response that ends early: `reserved`,
//! the default, for the units spent at first, or `seen`, for the cost reported until then.
//!
//! ```
//! use sluicegate_rules::{RulesFile, Variables};
//!
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies:
//!   requests: { quota: 60/min }
//!   tokens: { quota: 10000/min }
//! rules:
//!   - { name: calls, limit: requests, key: client }
//!   - name: answers
//!     limit: tokens
//!     key: client
//!     cost: 500
//!     settle: { json: usage.total_tokens, sse: usage.total_tokens, on_abort: seen }
//!     refund_if: 5xx
//! ", &Variables::none())?;
//! # let _ = file;
//! # Ok::<(), sluicegate_rules::RulesError>(())
//! ```
//!
//! # Bytes a second: `bandwidth`
//! A rule with `bandwidth` counts bytes of bodies instead of requests: `down` for responses, `up` for requests, or `both`. Bodies take
//! the bytes in pieces as they pass, and wait for their turn, first come, first served; it refuses no request. All limits of the rule and
//! of other matching rules apply. Bodies follow a reload while they pass. Uploads need
//! [`reading_requests`](RulesLayer::reading_requests).
//!
//! ```
//! use sluicegate_rules::{RulesFile, Variables};
//!
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies:
//!   requests: { quota: 600/min }
//!   downloads: { quota: 1MB/s burst 2MB }
//!   line: { quota: 50MB/s }
//! rules:
//!   - { name: requests, limit: requests, key: client }
//!   - { name: files, only_if: { path: /files/* }, limit: downloads, key: client, bandwidth: down }
//!   - { name: line, limit: line, key: everybody, bandwidth: both }
//! ", &Variables::none())?;
//! # let _ = file;
//! # Ok::<(), sluicegate_rules::RulesError>(())
//! ```
//!
//! | word | the bucket is that of | a request has none if |
//! |---|---|---|
//! | `client`, `client(48)` | the client's address; for IPv6 its network (64 bits, or `ipv6_prefix`, or those in the brackets) | the server does not pass on the peer |
//! | `peer` | the address of the connection, whatever proxies say | as for `client` |
//! | `everybody` | all requests together | never |
//! | `jwt(claim)` | a claim of a verified token | there is no valid token with this claim |
//! | `api_key` | a key that the file of `api_keys` lists | it sends none that is listed |
//! | `api_key(header)`, `header(name)` | the value of the field, as a secret for `api_key` | the field is missing or empty |
//! | `query(name)`, `cookie(name)` | the value of the parameter, of several the first in the order of the alphabet; the value of the cookie, as a secret | it is missing or empty |
//! | `path`, `method`, `host`, `route` | that part of the request: the path in its normal form, `HEAD` as `GET`, the host without its port, and the route of axum's router | the request names no host, or has no route, as before a router |
//! | `client + path`, or others so | both together, and only a request that has both has one | it lacks one of them |
//! | `body(field)` | the value of a [field of the body](#fields-of-bodies) | it has no such field |
//! | `folded(body(field))` | the same, where upper and lower case and space around the value make no difference | as for `body(field)` |
//! | `verified_before(..)` | the inner key, which a proxy in front has verified | as for the inner key |
//! | `descriptor`, `descriptor(entry)` | a [descriptor](#descriptors-of-envoy), or the value of one of its entries | it is none, or the entry is missing or empty |
//! | a name under `keys` | the first of its list that the request has | it has none of them |
//! | a name with `program` under `keys`, as `user: program` | the key that [`RulesBuilder::key`] finds | it finds none |
//!
//! `on_missing_key` of a rule says what happens to a request without a key: `share` puts all of them into one bucket (the default), `skip`
//! skips the rule for them, and a status refuses them. A server that does not pass on the peer is a mistake and answers 500.
//!
//! # Who is behind a request: `clients`, `jwt`, `api_keys` and `keys`
//! Without `clients` the address of a client is the address of the connection's peer. Behind proxies, name their networks (`proxies`) or
//! their number (`hops`; behind a Unix socket `hops: 1`), and the `header` that they write. `ipv6_prefix: 56` sets how much of an IPv6
//! address is one client, and `nat64: true` counts addresses in `64:ff9b::/96` as the IPv4 addresses inside them. `jwt` says how tokens are verified. `api_keys` lists the known keys by their
//! sha256, each with a tier, a `quota` or both. `keys` names a list of keys, or says that the program finds the key.
//!
//! ```
//! use std::net::SocketAddr;
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//! use sluicegate_tower::key::PeerAddr;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! clients: { proxies: 10.0.0.0/8, header: x-forwarded-for }
//! jwt:
//!   hs256: ${JWT_SECRET}
//! policies:
//!   api: { quota: 100/min }
//! keys:
//!   caller: [jwt(sub), client]
//! rules:
//!   - { name: all, limit: api, key: caller }
//! ", &Variables::none().or_placeholders())?;
//! let rules = Rules::new(&MemoryStore::new(), file)?;
//!
//! let mut request = Request::get("/").header("x-forwarded-for", "192.0.2.7").body(())?;
//! request.extensions_mut().insert(PeerAddr(SocketAddr::from(([10, 0, 0, 1], 443))));
//! let explained = rules.explain(&request).await;
//! assert_eq!(explained.rules[0].limits[0].asks.clone()?.key.shown().to_string(), "192.0.2.7");
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting rooms: `on_exceeded: room`
//! A policy with `on_exceeded: room` is a waiting room; its `quota` is the rate. A request that matches a rule with this policy spends
//! nothing: it enters with its pass or its turn, and waits otherwise. A browser that opens a page gets a waiting page that reloads itself, and any
//! other request gets 503 with JSON at once. The section `room` has the other settings:
//!
//! | word | says | default |
//! |---|---|---|
//! | `opens_at` | when it opens, as `2026-11-27T12:00:00Z`; earlier visitors are drawn by lot | it is open |
//! | `most_active` | the most visitors inside at once | no bound except the rate |
//! | `pass_lasts` | how long an admitted visitor may stay | `15min` |
//! | `longest_line` | the most waiting visitors | 1,000,000 |
//! | `places_per_client` | the most places of one client, by the `key` of the rule | any number |
//!
//! A request meets its rooms before its permits and its limits, wherever the rule is, so that polls of waiting visitors spend
//! nothing, and an admitted request spends. `deny` and `exempt` still come first, and within a group the first matching rule applies. A request
//! that matches several rooms passes through them in the order of the file; two policies are two rooms.
//!
//! Code, and never a file, says where lines are kept and which secrets sign tickets: [`Rules::builder`] takes both as
//! [`rooms`](RulesBuilder::rooms), for example `sluicegate::overflow::Rooms`. Tools have none, and read the file [without
//! rooms](RulesFile::without_rooms).
//!
//! ```
//! use http::Request;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "
//! version: 1
//! policies:
//!   sale: { quota: 50/s, on_exceeded: room, room: { most_active: 500, pass_lasts: 10min } }
//!   api: { quota: 100/min }
//! rules:
//!   - { name: shop, only_if: { path: /shop }, limit: sale, key: client }
//!   - { name: api, limit: api, key: everybody }
//! ";
//! let file = || RulesFile::parse("rules.yaml", text, &Variables::none());
//!
//! let error = Rules::new(&MemoryStore::new(), file()?).unwrap_err().to_string();
//! assert!(error.contains("rule \"shop\" has the waiting room sale, 50/s, and the program gives none"), "{error}");
//!
//! let tool = Rules::new(&MemoryStore::new(), file()?.without_rooms())?;
//! let explained = tool.explain(&Request::get("/shop").body(())?).await.to_string();
//! assert_eq!(explained.lines().nth(1), Some("  shop: waiting room sale, 50/s"));
//! # Ok(())
//! # }
//! ```
//!
//! # Work for later: `on_exceeded: defer`
//! A request that exceeds a policy with `on_exceeded: defer` is kept, answered with 202, and run when the policy has room. Limits that
//! refuse come first, and a refused request is not kept; a request that they let through has spent their units, and is then served or kept. A job
//! spends from the policies that deferred it, by their current quotas. A policy in shadow mode defers no request.
//!
//! Code, and never a file, gives the queue and the secret: [`Rules::builder`] takes both as [`deferral`](RulesBuilder::deferral), for
//! example `sluicegate::overflow::deferred::Deferral`, and the layer is made by [`deferring`](RulesLayer::deferring). A file that defers is refused in a
//! program without one:
//!
//! ```
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies:
//!   orders: { quota: 2/s, on_exceeded: defer }
//!   per-user: { quota: 100/min }
//! rules:
//!   - { name: order, only_if: { path: /orders, method: POST }, limit: orders, key: everybody }
//!   - { name: all, limit: per-user, key: client }
//! ", &Variables::none())?;
//! let error = Rules::new(&MemoryStore::new(), file).unwrap_err().to_string();
//! assert!(error.contains("rule \"order\" has the policy \"orders\", which defers, and the program keeps no requests"), "{error}");
//! # Ok::<(), sluicegate_rules::RulesError>(())
//! ```
//!
//! Such a policy cannot have quotas of keys or be a tier; its rule has no `settle`, `refund_if` or `bandwidth`. [`RulesFile::deferring`] lists the
//! rules that defer, and an [explanation](Explained) names the exceeded policies and the longest body that the queue keeps.
//!
//! # How many at once: `in_flight`
//! A number under `in_flight` limits the requests of a key that may be under way in each instance, and a rule names it together with its limits:
//! `exports: { permits: 10 }`, or `exports: 10`. A rule that names one needs no `limit`. A request above it is refused, or waits with `on_exceeded: wait 10s`; a waiting request has spent nothing, and keeps the limits that it
//! began with. [`RulesLayer`] has an example.
//!
//! With `shared: true` all instances share the `permits` through the store: `{ permits: 2, shared: true, lease: 30s, on_outage: deny }`. The
//! permits of a crashed instance are back when its `lease` is over. While the store gives no answer, each instance gives out its share by
//! the store's `replicas`, unless `on_outage` says otherwise. See
//! [`InFlightBuilder::on`](sluicegate_in_flight::InFlightBuilder::on). A reload that changes only `permits` keeps the permits that are out.
//!
//! With `adaptive` instead of `permits` there is one number for all keys together, which follows the capacity of the service: `{ adaptive: gradient,
//! at_least: 10, at_most: 500, on_exceeded: wait 100ms }`. Shed requests get 503. The `class` of a rule is the importance of its requests:
//! `class: sheddable`, or the places where it is read, `class: [jwt(class), header(x-class), sheddable]`. A header counts only in requests from
//! the proxies under `clients`, and a text that is not a class is ignored. `timeout`, `guarantee`, `fair` and `mode: shadow` are the settings of
//! [`AdaptiveBuilder`](sluicegate_in_flight::AdaptiveBuilder). A reload keeps the current number, unless the algorithm changes.
//!
//! # Where it is counted: `store`, and variables
//! `redis` names a Redis that all instances share; without the section the program gives a store. `fleet: [leases, deny-cache]` next to it saves
//! calls to that Redis: an instance decides frequent keys from units that it holds, and refused keys from memory. `durable: true` uses only a
//! Redis that keeps its counts over a restart and while its memory is full; otherwise policies decide as in an outage, and the log names the
//! setting that fixes it. `secret: ${REDIS_SECRET}`, the same for all instances, keeps a reader of Redis from finding addresses and user names
//! by trying them.
//!
//! `${NAME}` in a value stands for an environment variable, inserted after the file was parsed, and never inside quotes or braces. A service
//! refuses a file with a variable that is not set; tools use a placeholder and say which value they took instead.
//! [`Variables`] has an example.
//!
//! # What is wrong with a file
//! Mistakes are all reported at once: those of shape first, with the nearest known word, and those in values once the shape is right.
//! `sluicegate check` prints them, and warnings. A file is also checked against its store: a sliding log of more than
//! 2,000 entries is an error if `store` names a Redis. Values under `jwt`, `store` and `api_keys` are never shown, nor those that a header
//! field or a parameter must have.
//!
//! ```
//! use sluicegate_rules::{RulesFile, Variables};
//!
//! let text = "version: 1
//! policies:
//!   login: { quota: 5/fortnight, on_outage: no }
//! rules:
//!   - { name: login, limit: logins, key: client }
//! ";
//! let error = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_err();
//! let places: Vec<_> = error.problems().iter().map(|problem| (problem.line(), problem.column())).collect();
//! assert_eq!(places, [(Some(3), Some(21)), (Some(3), Some(43)), (Some(5), Some(27))]);
//! assert!(error.problems()[2].text().ends_with("did you mean \"login\"?"));
//! ```
//!
//! # While the service runs
//! [`Rules::open`] remembers the path of the file. [`follow`](Rules::follow) reads it again when it changes,
//! [`reload_on_sighup`](Rules::reload_on_sighup) when the process gets that signal, and [`reload`](Rules::reload) when code calls it. One
//! line in the log lists the kept, changed, added and removed rules. A wrong file changes nothing: it is logged once, and a page can
//! show it by [`listen`](Rules::listen). With the feature `metrics`, `rate_limit_rules_reloads_total{result}` counts files that were `loaded`
//! and that were `wrong`, and `rate_limit_rules_loaded_timestamp_seconds` is the time when the rules in force were loaded.
//!
//! Spent units stay spent when a reload changes the quotas of a policy. `inherit` says otherwise for one policy and its shares: with
//! `inherit: reset` each key has its whole new quota, and [`Inherit`](sluicegate_core::limiter::Inherit) has the other words with an
//! example. It applies to reloads that change quotas or the algorithm of this policy, not to those that change its other options,
//! its `overrides` or tiers, and not to a restart. Each of several instances that share a Redis starts a key afresh when it
//! reloads, as [`RateLimiter::reset_all`](sluicegate_core::RateLimiter::reset_all) does. Take the word out when its reload is done.
//!
//! # When not to use it
//! Limits that only a programmer changes belong in code, where they are checked at compile time.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod at;
mod builder;
mod changes;
mod compile;
mod descriptor;
mod error;
mod explain;
mod file;
mod in_force;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod read;
mod reload;
mod rooms;
mod rules;
mod schema;
mod shape;
mod shown;
#[cfg(unix)]
mod sighup;
mod variables;

pub use self::builder::RulesBuilder;
pub use self::changes::Changes;
pub use self::descriptor::{Descriptor, Descriptors};
pub use self::error::{Problem, RulesError};
pub use self::explain::{DeferralExplained, Explained, RoomExplained, RuleExplained, Section};
pub use self::file::RulesFile;
pub use self::layer::{DeferringRulesLayer, ReadingRulesLayer, RulesLayer, RulesService};
pub use self::rules::Rules;
pub use self::schema::json_schema;
pub use self::variables::Variables;
