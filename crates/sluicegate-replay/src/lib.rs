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
//! | limits | the limits of the rules, found by the same code as in the service, decided by the store in memory |
//! | time | the log's; if a line has its end and duration, the beginning |
//! | order | lines are sorted among at least the last 32,768 requests and ten seconds; a later line counts at the earliest moment that is still open |
//! | several logs | are merged: the log with the earliest next line is read first |
//! | whole seconds | requests of one second are spread over it, or come together; the figures show both |
//! | clients | do not react: after a rejected request come the same requests as in the log |
//! | statuses | a rule with `refund_if` gives back at once; a line with status 429 counts as asked, and gives nothing back |
//! | keys | a rule is left out if the log lacks its key, and the outcome says how often |
//! | waits | a request that waits for its turn counts as allowed, and its cost counts from its turn on |
//! | mistakes | a request that asks one policy twice, or more than 16 quotas, is left out: the service answers it with 500 |
//!
//! # When not to use it
//! A replay shows the effect of limits on past traffic. Refused clients come again, sooner or
//! later than in the log; to see the effect of a limit on today's traffic, put its policy into `shadow` mode.
//!
//! # How to choose a limit
//! 1. Replay a log of a busy day with the limit that you have in mind, and look at the keys with the most rejections. Crawlers and
//!    monitors usually come first; give the welcome ones a rule of their own, or exempt them.
//! 2. Look at requests per key and minute. A limit below the ninth decile of honest keys rejects honest requests every day; a limit above
//!    the maximum rejects nothing, and bounds only new clients.
//! 3. Ask for a suggestion with the share of rejections that you accept, and compare algorithms: if windows reject far more than buckets,
//!    the burst matters, and not the rate.
//! 4. Put the policy into force in `shadow` mode, and compare its refusals with the replay.
//! 5. Run the replay in a pipeline that fails above a share, so that a harmful change of the rules is found before customers notice it.
//!
//! # What is unusual
//! A log is compared with itself. Its time windows are as narrow as possible while half of them have requests; a window is unusual if it is
//! more than six times the median deviation above the median. The outcome lists the unusual parts before all figures
//! ([`ReplayOutcome::unusual`]):
//!
//! | kind | is listed if |
//! |---|---|
//! | new clients | many more clients come than usual, from the first window in which their number rises |
//! | a network, a user agent, a path | several clients that share it make a third of a window's requests, far more than usual |
//! | even clients | at least thirty clients come every minute at one rate, and make more than half of all requests |
//!
//! Ordinary clients within such a part are separated from the others by how often and how long they come, their agent, their
//! path, and the number of clients in their network. A single client with many requests is not unusual: limits handle it.
//!
//! The replay does not see an attack that lasts through the whole log at one rate, unless its clients are even ones; nor one by fewer than ten
//! new clients; nor one behind a proxy, if the log has only the proxy's address and no rule has the key `client`. In a log of less than six
//! windows it finds only even clients. Above two million cells (requests that differ only in their moment within a minute) it draws a sample
//! of the clients, and numbers are estimates.
//!
//! # How exact it is
//! Tests compare the figures of a real log with an independent slow model of each algorithm, for both treatments of whole seconds. The
//! service's own code finds the limits of a request, and the algorithms of every store decide. The figures
//! do not depend on the number of reading threads, nor on the order of several logs.
//! The replay says where it is not exact: late lines, forgotten keys, requests that were left out, and the error of a
//! suggestion from a sample.
//!
//! A suggestion is learned from one log, and the next log differs. Learned from one half of a real log of two days and judged on the other
//! half, `0.1%/keys` refuses one of 535 keys and none of 521. `0.1%` of requests refuses none in one direction, and 94 of 2,500 in the other:
//! all 94 are from one client, which asks twice as fast as any client of the learned half. Ask for a share of keys if a single
//! client may dominate.
//!
//! # How fast it is
//! The speed is about a million lines a second and processor; three quarters of the time is reading. A hundred rules take a fifth more time
//! than one.
//! Memory grows with keys and rules, not with lines: see [`Replay::run`].
//!
//! # What it does not know
//! A log has no bodies, few header fields, and no trace of requests that never reached the server. A rule by a header field that the
//! format does not have, by a claim of a token or by a handler's result is left out, with the number of requests. Requests
//! that clients would not have sent after a refusal still count.

mod judge;
mod outcome;
mod read;
mod replay;
mod report;

pub use self::judge::{Compared, Distribution, RejectedKey, RuleFigures, RuleMinute, Worst};
pub use self::outcome::{
    Counted, Frontier, FrontierPoint, KeyGroup, LeftOut, LimitWithUnusual, LineCounts, NotUnderstood,
    ReplayOutcome, Share, Suggestion, Unusual, UnusualKind, UnusualSide,
};
pub use self::read::Format;
pub use self::replay::{Replay, ReplayError, WithinSecond};
