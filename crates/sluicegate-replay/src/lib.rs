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
//! | several logs | are one: of all, that one goes on whose next lines are the earliest |
//! | whole seconds | requests of one second are spread over it, or come together; the figures say both |
//! | clients | do not react: a request that is rejected here was followed by the same requests as then |
//! | statuses | a rule with `refund_if` gives back at once; a line that says 429 counts as asked, and gives nothing back |
//! | keys | a rule whose key the log does not say is left out, and the outcome says how often |
//! | waits | a request that waits its turn has room, and its cost counts from its turn on |
//! | mistakes | a request that asks one policy twice, or more than 16 quotas, is left out: the service answers it with 500 |
//!
//! # When not to use it
//! A replay says what limits would have done to the traffic of then. Clients that are refused come again, sooner or
//! later than they did; to see what a limit does to today's traffic, put its policy into `shadow` mode.

mod alone;
mod books;
mod counts;
mod court;
mod decide;
mod error;
mod figures;
mod format;
mod json;
mod keys;
mod lines;
mod order;
mod outcome;
mod pool;
#[cfg(test)]
mod random;
mod read;
mod replay;
mod report;
mod request;
mod rows;
mod second;
mod settings;
mod share;
mod slots;
mod suggest;
mod suggestion;
mod table;
mod trial;

pub use self::error::ReplayError;
pub use self::figures::{Compared, Distribution, Minute, Offender, RuleFigures, Worst};
pub use self::format::Format;
pub use self::outcome::{LeftOut, LineCounts, NotUnderstood, Outcome};
pub use self::replay::Replay;
pub use self::settings::WithinSecond;
pub use self::share::Share;
pub use self::suggestion::Suggestion;
