//! A server behind limits that adapt, on virtual time.
//!
//! A [`Scene`] is a server with workers, the load that comes, and what befalls both: real overload, errors, and changes that the server can
//! bear. It is played once for each [`Limit`]: the algorithms of [`sluicegate_in_flight::adaptive`], and those of others as references.
//! Everything is drawn from a seed, so that equal arguments give equal reports.
//!
//! ```
//! use sluicegate_in_flight::adaptive::LimitAlgorithm;
//! use sluicegate_simulator::adaptive::{Compared, Limit, Scene};
//!
//! let scene = Scene::named("errors-5s").expect("it is one of them");
//! let compared = Compared::of(&scene, &[Limit::Adaptive(LimitAlgorithm::Gradient)], 1..2);
//! assert!(compared.scores[0].needless < 0.01);
//! ```

mod limiter;
mod play;
mod references;
mod report;
mod scene;
mod score;
mod server;

pub use self::limiter::Limit;
pub use self::play::{Answer, Played, Second, play};
pub use self::references::Reference;
pub use self::report::Compared;
pub use self::scene::{Load, Phase, Scene};
pub use self::score::Score;
pub use self::server::{Server, Times};
