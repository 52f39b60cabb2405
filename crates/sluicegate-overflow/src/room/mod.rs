//! The room: [`WaitingRoom`].

mod builder;
#[cfg(feature = "metrics")]
mod metrics;
mod pass;
mod steered;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::StoreError;
use sluicegate_core::clock::Clock;
use sluicegate_core::policy::IntoQuota;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::room::RoomError;

pub use self::builder::WaitingRoomBuilder;
pub use self::pass::Pass;
use crate::line::{Line, LineChange, LineMode, LineStatus};
use crate::reply::Reply;
use crate::ticket::Secrets;

/// A waiting room, which keeps the line and lets visitors in. Clones are handles to the same room.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_overflow::WaitingRoom;
/// use sluicegate_overflow::line::{MemoryLine, LineMode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sale = WaitingRoom::builder("sale", "1000/s")
///     .most_active(20_000)
///     .pass_lasts(Duration::from_secs(600))
///     .build(MemoryLine::new())?;
///
/// // Changes take effect while visitors wait; all of them keep their places.
/// sale.set_rate("500/s").await?;
/// sale.set_mode(LineMode::Paused).await?;
/// assert_eq!(sale.status().rate.to_string(), "500/s burst 1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WaitingRoom(pub(crate) Arc<RoomParts>);

pub(crate) struct RoomParts {
    pub(crate) name: String,
    pub(crate) line: Arc<dyn Line>,
    pub(crate) secrets: Secrets,
    pub(crate) clock: Arc<dyn Clock>,
    /// Finds the key of a client, if places are counted by client and tickets are bound to it.
    pub(crate) client: Option<Arc<dyn KeyExtractor>>,
    pub(crate) page: Arc<PageFn>,
    lots: RandomState,
    drawn: AtomicU64,
    /// The second in which the numbers were last exported.
    #[cfg(feature = "metrics")]
    measured_second: AtomicU64,
}

/// Draws the page.
pub(crate) type PageFn = dyn Fn(&Reply<'_>) -> String + Send + Sync;

impl WaitingRoom {
    /// Begins a room of this name, which lets visitors in at this rate: `"1000/s"`, `"30/min"`. Turns are spaced, so a burst in the rate
    /// has no effect.
    ///
    /// The name appears in the cookie and on the page.
    pub fn builder(name: impl Into<String>, rate: impl IntoQuota) -> WaitingRoomBuilder {
        WaitingRoomBuilder::new(name.into(), rate.into_quota())
    }

    /// The name of the room.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The current numbers: visitors that wait, were let in or were passed over, and the wait of a visitor that comes now.
    pub fn status(&self) -> LineStatus {
        self.0.line.status()
    }

    /// Sets another rate from now on. Waiting visitors learn of it when they ask next. A line in Redis applies it to all instances that
    /// share the line: the last call wins, and the rates of their builders no longer count.
    ///
    /// # Errors
    /// When the text is no rate or the rate is 0, as [`RoomError::Config`]; and when the line does not answer, as [`RoomError::Store`].
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the rate may have changed or not.
    pub async fn set_rate(&self, rate: impl IntoQuota) -> Result<(), RoomError> {
        let rate = builder::checked(&self.0.name, rate.into_quota()).map_err(RoomError::Config)?;
        self.0.line.change(LineChange::Rate(rate)).await.map_err(RoomError::Store)
    }

    /// Pauses the room, opens it to all, or goes back to the rate; with a line in Redis for all instances, as with
    /// [`set_rate`](Self::set_rate).
    ///
    /// # Errors
    /// When the line does not answer.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the mode may have changed or not.
    pub async fn set_mode(&self, mode: LineMode) -> Result<(), StoreError> {
        self.0.line.change(LineChange::Mode(mode)).await
    }

    /// The lot of a new place: each one is different, and no client can foresee it.
    pub(crate) fn draw(&self) -> u32 {
        // Relaxed: the count orders nothing else.
        let number = self.0.drawn.fetch_add(1, Ordering::Relaxed);
        let [a, b, c, d, ..] = self.0.lots.hash_one(number).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Debug for WaitingRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRoom")
            .field("name", &self.0.name)
            .field("line", &self.0.line)
            .finish_non_exhaustive()
    }
}
