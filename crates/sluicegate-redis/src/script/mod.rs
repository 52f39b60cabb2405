//! The script: what goes in, and what comes out.
//!
//! One constant text in Lua decides everything, under one digest; the files in `lua/` are its
//! parts, and `lua/head.lua` describes the format of values, orders and replies in full.
//!
//! # An order
//! ```text
//! KEYS     one name per ask
//! ARGV[1]  f64  the time in microseconds; 0 for the server's
//!          then per ask:
//!            u8   mode: 0 spend, 1 peek, 2 reserve, 3 charge, 4 refund, 5 reset, 6 return, 7 depart, 8 take,
//!                 9 lease; +128 for the long way
//!            u8   1 if it is the last ask of its request
//!            u8   place of the policy's text in ARGV
//!            u8   how keys of other rules start (0 to 4); +8 if it keeps account of what is given
//!                 back; +16 if its peeks write nothing;
//!                 +32 if it spends although it is refused
//!            u16  bytes of the extra part
//!            f64  since when: what was spent before is forgotten; 0 for always
//!            f64  cost, per quota
//!            ..   the extra part: longest wait, receipt, turn and mark of a request in several slots
//! ARGV[2..] texts of policies, each once
//! ```
//!
//! # A reply
//! One string of doubles. First the time, then per request 0 and six numbers per quota, as the
//! bucket was *found*, and behind those of a lease the floors that it found (the short way: Rust
//! repeats what the script did, which is cheaper than to have Redis write it down), or 1 and all
//! results (the long way).
//!
//! # Two ways
//! The short way is a flat loop without functions or tables, for values that hold nothing but the
//! asker's own rules: almost all. A lease takes it alone and directly behind a spend of its bucket.
//! Everything else takes the long way: several rules in a value, turns, refunds, units that are held or
//! marked, the same bucket twice, a lease that several quotas cut.

mod command;
mod probe;
mod reply;

pub(crate) use self::command::{check, command};
pub(crate) use self::probe::probe;
pub(crate) use self::reply::Reply;
