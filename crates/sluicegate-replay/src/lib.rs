//! Replays an access log against the rules that a service runs, on the log's own clock: it says which requests the limits would
//! have rejected.
//!
//! ```
//! use sluicegate_replay::{Replay, Share};
//! use sluicegate_rules::{RulesFile, Variables};
//!
//! let rules = "
//! version: 1
//! policies: { api: { quota: 1/s burst 5 } }
//! rules: [{ name: api, limit: api, key: client }]
//! ";
//! let log = (0..60).map(|second| {
//!     format!("192.0.2.7 - - [17/May/2015:10:05:{second:02} +0000] \"GET / HTTP/1.1\" 200 17\n").repeat(2)
//! });
//! let log: String = log.collect();
//!
//! let rules = RulesFile::parse("rules.yaml", rules, &Variables::none())?;
//! let replay = Replay::new(rules)?.suggest("1%".parse::<Share>()?);
//! let outcome = replay.run([("access.log", std::io::Cursor::new(log))])?;
//! let api = &outcome.rules[0];
//! assert_eq!((api.asked, api.rejected), (120, 56));
//! assert_eq!(api.suggestion.as_ref().map(|suggestion| suggestion.limit), Some(2));
//! println!("{outcome}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it decides
//! | | |
//! |---|---|
//! | limits | those of the rules, found by the code that finds them in the service, decided by the store in memory |
//! | time | the log's; where a line has the time of its end and how long it took, the beginning |
//! | order | lines are put in order among at least the last 32,768 requests and ten seconds; a later one counts as of the earliest moment that is still open |
//! | several logs | are one: the log with the earliest next lines goes on |
//! | whole seconds | requests of one second are spread over it, or come together; the figures show both |
//! | clients | do not react: a request that is rejected here was followed by the same requests as then |
//! | statuses | a rule with `refund_if` gives back at once; a line that says 429 counts as asked, and gives nothing back |
//! | keys | a rule whose key the log does not say is left out, and the outcome says how often |
//! | waits | a request that waits its turn has room, and its cost counts from its turn on |
//! | mistakes | a request that asks one policy twice, or more than 16 quotas, is left out: the service answers it with 500 |
//!
//! # When not to use it
//! A replay says what limits would have done to the traffic of then. Clients that are refused come again, sooner or
//! later than they did; to see what a limit does to today's traffic, put its policy into `shadow` mode.
//!
//! # How to choose a limit
//! 1. Replay a log of a busy day with the limit that you have in mind, and look at the keys with the most rejections. Crawlers and
//!    monitors are there first; give those that you want a rule of their own, or exempt them.
//! 2. Look at requests per key and minute. A limit below the ninth decile of honest keys rejects honest requests every day; one above
//!    the maximum rejects nothing, and bounds what a new client may do.
//! 3. Ask for a suggestion with the share that you can bear, and compare algorithms: where windows reject far more than buckets, it is
//!    the burst that matters, and not the rate.
//! 4. Put the policy into force in `shadow` mode, and compare what it would refuse with what the replay said.
//! 5. Keep the replay in a pipeline with a share above which it fails, so that a change of the rules is seen before customers see it.
//!
//! # What is unusual
//! A log is compared with itself. Its windows of time are as narrow as they can be while half of them have requests; a window is unusual if it is
//! more than six times the median deviation above the median. So these parts are found, and told before all figures
//! ([`ReplayOutcome::unusual`]):
//!
//! | kind | is told if |
//! |---|---|
//! | new clients | many more clients come than usual, from the first window in which their number rises |
//! | a network, a user agent, a path | several clients that share it make a third of a window's requests, far more than usual |
//! | even clients | at least thirty come every minute at one rate, and make more than half of all requests |
//!
//! Among the clients of such a part, those that come by chance are told from the others by how often they come, for how long, with which
//! agent, for which path and from how full a network. A single client that asks a lot is nothing unusual: limits are there for it.
//!
//! It sees no attack that comes at one rate all through the log, unless its clients are even ones; none by fewer than ten new clients; and
//! none of whose clients the log does not say the address, because it has only that of a proxy and no rule by `client`. A log of less than six
//! windows has only even clients. Above four million cells (requests that are equal but for their moment in a minute) a part of the clients
//! is drawn, and numbers are estimates.
//!
//! # How exact it is
//! Figures of a real log are compared with those of an independent slow model of each algorithm, in both ways to treat whole seconds. The
//! code that finds a request's limits in the service finds them here, and the rules of every store decide the states of keys. The figures
//! do not depend on the number of threads that read, nor on the order of several logs.
//! The replay tells where it cannot be exact: lines that came too late, keys that were forgotten, requests that were left out, and how far a
//! suggestion out of a sample may be off.
//!
//! A suggestion is learned from one log, and the next log is another one. Learned in one half of a real log of two days and judged on the other
//! half, `0.1%/keys` refuses one of 535 keys and none of 521. `0.1%` of requests refuses none in one direction, and 94 of 2,500 in the other:
//! all of them are of one client, which asks twice as fast as any client of the half that was seen. Ask for a share of keys where a single
//! client may decide.
//!
//! # How fast it is
//! The speed is about a million lines a second and processor; three quarters of the time is reading. A hundred rules take a fifth more time
//! than one.
//! Memory grows with keys and rules, and not with lines: see [`Replay::run`].
//!
//! # What it does not know
//! A log has no bodies, few header fields, and no trace of requests that never reached the server. A rule by a header field that the
//! format does not have, by a claim of a token or by what a handler has found out is left out, with the number of requests. Requests
//! that clients would not have sent after a refusal are counted as they came.

mod counts;
mod error;
mod frontier;
mod group;
mod judge;
mod outcome;
mod read;
mod replay;
mod report;
mod settings;
mod share;
mod suggestion;
mod unusual;

pub use self::error::ReplayError;
pub use self::frontier::{Counted, Frontier, FrontierPoint};
pub use self::group::KeyGroup;
pub use self::judge::{Compared, Distribution, RejectedKey, RuleFigures, RuleMinute, Worst};
pub use self::outcome::{LeftOut, LineCounts, NotUnderstood, ReplayOutcome};
pub use self::read::Format;
pub use self::replay::Replay;
pub use self::settings::WithinSecond;
pub use self::share::Share;
pub use self::suggestion::{LimitWithUnusual, Suggestion, UnusualSide};
pub use self::unusual::{Unusual, UnusualKind};
