//! Shared limits for Sluicegate on Redis: the same algorithms, as one script.
//!
//! This crate is part of `sluicegate`; going from one process to a fleet changes the line that
//! makes the store:
//!
//! ```no_run
//! use sluicegate_core::Policy;
//! use sluicegate_redis::RedisStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1:6379")?;
//! let login = Policy::sliding_log("login", "5/min").on(&store)?;
//! assert!(login.check("ada").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! Put a `Resilient` store around it in production (feature `resilient` of the core, `redis` of
//! `sluicegate`). A bare Redis store reads each policy's [`OnOutage`](sluicegate_core::OnOutage) too, but
//! asks a server that hangs again with every request, and decides with whole quotas while there is no answer.
//!
//! # When to use it
//! - Several instances of a service share a limit: the limit is that of all of them together.
//! - Counts have to survive restarts and deployments of the service.
//! - Limits of days and months, for which a process does not live long enough.
//!
//! # When not to use it
//! - For one process. Memory decides in tens of nanoseconds and cannot fail; Redis takes a round
//!   trip.
//! - Where a limit per instance will do, such as protection against overload: give each instance
//!   its [share](sluicegate_core::Policy::share) in memory.
//! - For [requests in flight](sluicegate_core::in_flight), which are counted per process.
//! - For sliding logs of more than 2,000 entries.
//!
//! # How it works
//! A decision is one script call and one round trip, whatever the number of quotas and policies;
//! requests that come at the same time share a call, and are decided each for itself. The time is
//! the server's `TIME`, so the clocks of the instances do not matter. Keys expire by themselves at
//! the moment their state is back at rest.
//!
//! The connection is looked after in the background: a request uses it or fails at once, and never
//! waits for a server that is away, but in the first second after the store was made. One that was closed while nobody used it, by the server's
//! `timeout` or a proxy, is replaced at once; only a request that comes during that one attempt
//! waits for it, within its deadline.
//!
//! A command is never sent again unless the reply proves that it had no effect. On a Cluster the
//! redis client itself repeats a command once when a connection breaks, so a request may be charged
//! twice there. Servers and proxies without RESP3 do not report closed connections: with them, the
//! first request after that fails.
//!
//! A new connection is used when the server has run the script by it and has said what it must say:
//! then no request has to send the script (but on a Cluster, the first one to each node), and a
//! missing right is a line in the log. TCP keepalive asks after 15 s of silence whether the server
//! is there, so that no NAT or firewall forgets the connection; for connections and pools of the
//! application's own it is for the application to set.
//!
//! # What a failure means
//! | what happens | what a request gets | what was spent |
//! |---|---|---|
//! | no connection yet, in the first second of the store | waits for the [first one](RedisStoreBuilder::first_connection) | as usual |
//! | no connection | [`Unavailable`](sluicegate_core::error::StoreErrorKind::Unavailable), at once | nothing, and the error says so |
//! | no reply within the deadline | [`Timeout`](sluicegate_core::error::StoreErrorKind::Timeout) | perhaps |
//! | the connection breaks before the reply | `Unavailable` | perhaps |
//! | the server lost the script (restart, failover, `SCRIPT FLUSH`) | the decision: the script is sent along | once |
//! | a replica, a full or a loading server, a missing right | `Unavailable` | nothing |
//! | a value under the key's name that is not ours | a decision as for a fresh key | as usual |
//!
//! A caller of a [`RateLimiter`](sluicegate_core::RateLimiter) sees a decision in the place of
//! these errors, by what the policy says of an outage.
//!
//! # Servers
//! Redis 6.2 and later, and Valkey. Tests run against Redis 6.2 and 7.0 and Valkey 8.1 and 9.1
//! (`./tests/run redis servers`).
//!
//! # Cluster
//! The buckets of one key share a hash slot. A request that is checked against several keys (an
//! address and a user) is decided per slot:
//!
//! 1. All slots are looked at first, at the same time, so that a request that is refused spends
//!    nowhere.
//! 2. Then it spends in one slot after the other, where least is left first. Its units are
//!    marked until it is decided. Another request in several slots that only marked units refuse is
//!    asked once more; one in a single slot is refused at once, and the refusal says that it is
//!    [provisional](sluicegate_core::store::QuotaStatus::is_provisional).
//! 3. If a later slot refuses after all, what the others spent is given back, and nobody waits for
//!    that.
//! 4. Charges, refunds and resets of the same request follow when all slots have granted.
//!
//! Units stay spent that a process had spent before it died in between: more is denied for it, never
//! more admitted. All of these round trips have one deadline together.
//!
//! # Replaced policies, and instances that disagree
//! A key is one value, and the value says which rules its states are of. Every
//! [`Inherit`](sluicegate_core::limiter::Inherit) does what it does in memory, once per key, when
//! the key is next asked for.
//!
//! While a new version of a service is rolled out, instances with different quotas, bursts, periods
//! or algorithms ask for the same keys. Each decides by its own rules, and what it lets pass is
//! charged to those of the others, too. So a key has at most the larger burst at once and the
//! larger rate in the long run, whichever instances it meets. Rules that nobody asks for any more
//! are forgotten by and by; of more than three at a time, the one asked least recently starts anew
//! from what the others have counted. With
//! [`version`](sluicegate_core::policy::PolicyBuilder::version) on the policies the newest one
//! decides alone, for all instances, once a key has met it.
//!
//! `Inherit::Reset` forgets what was spent before the moment of the replacement, by the clock of
//! the instance that replaces. Where several instances replace, each of them forgets what was spent
//! before its own replacement; with a higher version, a key is reset once. So does
//! [`reset_all`](sluicegate_core::RateLimiter::reset_all): it sends nothing and deletes nothing, and a key is forgotten when an
//! instance that was told so first decides about it, with what others have spent on it since.
//!
//! # Overrides of operators
//! An [override](sluicegate_core::limiter::Overrides) that is put on one instance is in force on all of them within 5 s: each reads a key
//! every 4 s, and whenever it has connected, before a request uses the connection. Its time is the server's. Instances that know of
//! an override write it again when the server has lost it, by `FLUSHALL`, a restart or a failover. To end it, withdraw it: a key that
//! is deleted by hand comes back.
//!
//! # Sliding logs
//! They have at most 2,000 entries: the value is written whole with every decision, and Redis serves
//! nobody else meanwhile. A call on a log of 2,000 entries takes some 100 microseconds. For a higher limit
//! give the log a [resolution](sluicegate_core::policy::PolicyBuilder::resolution): a log of 20 parts has at
//! most 21 entries.
//!
//! # What Redis sees
//! Names such as `rl:2:login:{q0Zx…}`: prefix, format, policy, and a keyed hash of the key;
//! [`RedisStore::key_name`] tells the name of a key. No API key or address is ever readable in it.
//! `rl:2:{probe}:overrides` has the overrides of operators as text, until the last of them is over.
//! A value that is not ours counts as a fresh key. Every error of a command is an outage.
//!
//! # Rights
//! A user of its own needs these commands and no others, on the keys that begin with the prefix:
//!
//! ```text
//! ACL SETUSER app on >password ~rl:* +eval +evalsha +time +get +set +del
//! ```
//!
//! On a Cluster `+cluster|slots` comes to that, and behind Sentinel `+role`. There the redis client
//! also tells its name by `CLIENT SETINFO`; without the right it works all the same, and the
//! server's ACL log has an entry for each connection. [`RedisStore::inspect`] needs
//! `+scan +memory|usage +object|idletime`, too: give those to a tool's user.
//!
//! # Eviction
//! A server whose `maxmemory-policy` evicts keys may forget a debtor. Give rate limits a server or
//! a database whose policy is `noeviction`, and enough memory: then a full server is an outage,
//! which is handled, and not a silent reset. Keys expire by themselves, so memory follows the
//! number of clients per period.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `tls` | `rediss://` URLs; the application installs a rustls crypto provider before it connects |
//! | `deadpool` | stores on a pool of deadpool-redis that the application has already |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod store;

#[cfg(feature = "deadpool")]
#[cfg_attr(docsrs, doc(cfg(feature = "deadpool")))]
pub use self::connection::DeadPool;
pub use self::store::{PolicyKeys, RedisStore, RedisStoreBuilder, Script, Slot};
