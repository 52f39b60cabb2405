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
//! Put a `Resilient` store around it in production (of `sluicegate-resilient`, which the feature `redis` of
//! `sluicegate` has). A bare Redis store also follows each policy's [`OnOutage`](sluicegate_core::OnOutage), but
//! calls a hanging server again for every request, and decides with whole quotas while there is no answer.
//!
//! # When to use it
//! - Several instances of a service share a limit, which holds for all instances together.
//! - Counts have to survive restarts and deployments of the service.
//! - Limits have periods of days or months, longer than a process lives.
//!
//! # When not to use it
//! - For one process. Memory decides in tens of nanoseconds and cannot fail; Redis takes a round
//!   trip.
//! - If a limit per instance is enough, such as protection against overload: give each instance
//!   its [share](sluicegate_core::Policy::share) in memory.
//! - For limits in flight that adapt to what a service can bear: each process finds that out by
//!   itself.
//! - For sliding logs of more than 2,000 entries.
//!
//! # How it works
//! A decision is one script call and one round trip, whatever the number of quotas and policies;
//! requests that come at the same time share a call, and are decided independently. The time is
//! the server's `TIME`, so the clocks of the instances do not matter. Keys expire by themselves within
//! a second after their state is back at rest.
//!
//! A background task maintains the connection: a request uses it or fails at once, and never
//! waits for a server that is down, except in the first second after the store was made. A connection that was closed while idle,
//! by the server's `timeout` or a proxy, is replaced at once; only a request that comes during that one attempt
//! waits for it, within its deadline.
//!
//! A command is never sent again unless the reply proves that it had no effect. On a Cluster the
//! redis client itself repeats a command once when a connection breaks, so a request may be charged
//! twice there. Servers and proxies without RESP3 do not report closed connections: with them, the
//! first request after the close fails.
//!
//! A new connection is used when the server has run the script over it with the right replies.
//! So no request has to send the script (except the first one to each node of a Cluster), and a
//! missing right is a line in the log. TCP keepalive probes a silent connection after 15 s,
//! so that no NAT or firewall forgets the connection; for its own connections and pools, the
//! application has to set it.
//!
//! # What a failure means
//! | what happens | what a request gets | what was spent |
//! |---|---|---|
//! | no connection yet, in the first second of the store | waits for the [first one](RedisStoreBuilder::first_connection) | as usual |
//! | no connection | [`Unavailable`](sluicegate_core::error::StoreErrorKind::Unavailable), at once | nothing, and the error says so |
//! | no reply within the deadline | [`Timeout`](sluicegate_core::error::StoreErrorKind::Timeout) | perhaps; nothing if it was not sent before, and the error says so. A check that the server gets to later is not carried out; a charge or refund is |
//! | the connection breaks before the reply | `Unavailable` | perhaps |
//! | the server lost the script (restart, failover, `SCRIPT FLUSH`) | the decision: the script is sent along | once |
//! | a replica, a full or a loading server, a missing right | `Unavailable` | nothing |
//! | a foreign value under the key's name | a decision as for a fresh key | as usual |
//!
//! A caller of a [`RateLimiter`](sluicegate_core::RateLimiter) gets a decision in place of
//! these errors, by the policy's `OnOutage`.
//!
//! # Servers
//! Redis 6.2 and later, and Valkey. Tests run against Redis 6.2 and 7.0 and Valkey 8.1 and 9.1
//! (`./tests/run redis servers`).
//!
//! # Cluster
//! The buckets of one key share a hash slot. A request that is checked against several keys (an
//! address and a user) is decided per slot:
//!
//! 1. All slots are peeked at first, at the same time, so that a refused request spends
//!    nothing.
//! 2. Then the request spends in one slot after the other, first in the slot with the fewest units left. Its units are
//!    marked until it is decided. If only marked units refuse another request in several slots, that request is
//!    tried once more; a request in a single slot is refused at once, and the refusal says that it is
//!    [provisional](sluicegate_core::store::QuotaStatus::is_provisional).
//! 3. If a later slot refuses after all, the other slots get their units back, and no request waits for
//!    this.
//! 4. Charges, refunds and resets of the same request follow when all slots have granted.
//!
//! If a process dies in between, the units that it has spent stay spent: more is denied, never
//! more admitted. All of these round trips share one deadline.
//!
//! # Replaced policies, and instances that disagree
//! A key is one value, which includes the rules of its states. Every
//! [`Inherit`](sluicegate_core::limiter::Inherit) works as in memory, as of the moment of the replacement, or
//! of the key's last change if that is later; only requests that change something write it.
//!
//! While a new version of a service is rolled out, instances with different quotas, bursts, periods
//! or algorithms use the same keys. Each decides by its own rules, and the units that it admits are
//! charged under the rules of the others, too. So a key has at most the larger burst at once and the
//! larger rate in the long run, whichever instances it meets. Rules that are no longer used
//! are forgotten over time; with more than three at a time, the least recently used rule starts afresh
//! from the counts of the others. With
//! [`version`](sluicegate_core::policy::PolicyBuilder::version) on the policies the newest one
//! decides alone, for all instances, once a key has met it.
//!
//! `Inherit::Reset` forgets units spent before the moment of the replacement, by the clock of
//! the instance that replaces. If several instances replace, each forgets units spent
//! before its own replacement; with a higher version, a key is reset once. So does
//! [`reset_all`](sluicegate_core::RateLimiter::reset_all): it sends and deletes nothing, and a key is forgotten when an
//! instance that knows of the reset first decides about it, including the units that others have spent since.
//!
//! # Overrides of operators
//! An [override](sluicegate_core::limiter::Overrides) that is put on one instance is in force on all of them within 5 s: each reads a key
//! every 4 s, and whenever it has connected, before a request uses the connection. Its time is the server's. Instances that know of
//! an override write it again when the server has lost it, by `FLUSHALL`, a restart or a failover. To end it, withdraw it: a key that
//! was deleted by hand is written again.
//!
//! # Sliding logs
//! They have at most 2,000 entries: the value is written whole with every decision, and Redis serves
//! no other client meanwhile. A call on a log of 2,000 entries takes about 100 microseconds. For a higher limit,
//! give the log a [resolution](sluicegate_core::policy::PolicyBuilder::resolution): a log of 20 parts has at
//! most 21 entries.
//!
//! # Permits for requests under way
//! An `InFlight` of the crate `sluicegate-in-flight` on this store limits
//! all instances together, by the server's clock. A key is a hash with a field for each instance: the number of permits that it
//! holds, until the end of its lease. It takes about 100 bytes, plus 90 for each instance. Taking a permit is one call; a task of each
//! instance gives permits back, and reports its permits to Redis three times in each lease. All keys of a limit are in one hash slot, so
//! that one call reports up to 256 of them.
//!
//! | what happens | effect on the permits |
//! |---|---|
//! | an instance crashes | they are back when its lease is over |
//! | an instance is paused, or does not reach the server, for its lease | they are lost (`Permit::lost`), and it is notified before others get them; after a pause, as soon as it continues |
//! | the server loses its data, or its clock steps ahead by the lease | each may be granted once more until the next renewal, a third of the lease later; then the newest are lost |
//! | the server's clock steps back | nothing |
//!
//! # What Redis sees
//! Redis sees names such as `rl:3:login:{q0Zx…}`: prefix, format, policy, and a keyed hash of the key;
//! [`RedisStore::key_name`] returns the name of a key. It never contains a readable API key or address.
//! `rl:3:{probe}:overrides` has the overrides of operators as text until the last of them ends.
//! A foreign value counts as a fresh key. Every error of a command is an outage.
//!
//! # Rights
//! A user of its own needs these commands and no others, on the keys that begin with the prefix:
//!
//! ```text
//! ACL SETUSER app on >password ~rl:* +eval +evalsha +time +get +set +del
//! ```
//!
//! Permits that instances share need `+hgetall +hset +hdel +pexpire`, too, and a [durable](RedisStoreBuilder::durable) store `+info`.
//!
//! On a Cluster it also needs `+cluster|slots`, and behind Sentinel `+role`. There the redis client
//! also sets its name by `CLIENT SETINFO`; the client works without this right, but the
//! server's ACL log gets an entry for each connection. [`RedisStore::inspect`] also needs
//! `+scan +memory|usage +object|idletime`: give these rights to a tool's user.
//!
//! # Eviction
//! A server whose `maxmemory-policy` evicts keys may forget a key in debt. Give rate limits a server or
//! a database with the policy `noeviction` and enough memory: then a full server is an outage,
//! which is handled, not a silent reset. A [durable](RedisStoreBuilder::durable) store checks both this and the append-only file. Keys
//! expire by themselves, so memory is proportional to the number of clients per period.
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
pub use self::store::{HashSlot, PolicyKeys, RedisStore, RedisStoreBuilder, Script};
