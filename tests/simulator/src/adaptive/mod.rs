//! A server with too much to do, behind a limit that adapts, on virtual time.
//!
//! A [`Scene`] is a server with workers, the load that comes, and what befalls both. It is played once for each limit: fixed numbers, and
//! the algorithms of [`sluicegate_in_flight::adaptive`]. Everything is drawn from a seed, so that equal arguments give
//! equal reports.
//!
//! ```
//! use sluicegate_in_flight::adaptive::LimitAlgorithm;
//! use sluicegate_simulator::adaptive::{Compared, Scene, Server, Times};
//!
//! let server = Server { workers: 10, ..Server::default() };
//! let scene = Scene::named("rest", 10).expect("it is one of them");
//! let compared = Compared::of(&scene, server, Times::Exponential, 1, &[LimitAlgorithm::Gradient]);
//! assert!(compared.rows[0].goodput > 0.9);
//! ```

mod compare;
mod limiter;
mod picture;
mod play;
mod report;
mod scene;
mod server;

pub use self::compare::{Compared, Row};
pub use self::limiter::Limit;
pub use self::play::{Answer, Played, play};
pub use self::report::Summary;
pub use self::scene::{Load, Phase, Scene};
pub use self::server::{Server, Times};
