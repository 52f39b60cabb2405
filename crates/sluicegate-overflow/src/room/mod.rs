//! The room ([`WaitingRoom`]), the passes of its visitors and its controls on the status page.
//!
//! Operators write a rate and a mode as text, and read the same words. Both are parsed before either takes effect, so a mistake in one
//! changes nothing.

mod builder;
#[cfg(feature = "metrics")]
mod metrics;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluicegate_core::clock::Clock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::policy::IntoQuota;
use sluicegate_core::{ConfigError, StoreError};
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::room::{Room, RoomChange, RoomError, RoomNumbers};

pub use self::builder::WaitingRoomBuilder;
use super::line::LinePlace;
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

/// The pass of a visitor, in the extensions of each request that a room lets through.
///
/// A handler ends the pass when the visitor is done, so that another visitor may enter if the number of
/// [active](super::WaitingRoomBuilder::most_active) visitors is bounded. The response then removes the cookie.
///
/// ```
/// use http::Extensions;
/// use sluicegate_core::StoreError;
/// use sluicegate_overflow::Pass;
///
/// /// The last step of an order.
/// async fn paid(extensions: &Extensions) -> Result<(), StoreError> {
///     match extensions.get::<Pass>() {
///         Some(pass) => pass.end().await,
///         None => Ok(()),
///     }
/// }
/// # _ = paid;
/// ```
#[derive(Clone)]
pub struct Pass {
    place: LinePlace,
    line: Arc<dyn Line>,
    is_ended: Arc<AtomicBool>,
}

impl Pass {
    /// The pass of this place, valid until it expires or is ended.
    pub(crate) fn new(place: LinePlace, line: Arc<dyn Line>) -> Self {
        Self { place, line, is_ended: Arc::default() }
    }

    /// Ends the pass: the next request with it waits in line like any other.
    ///
    /// # Errors
    /// When the line does not answer; the pass may then be valid until it expires.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the pass may have ended or not.
    pub async fn end(&self) -> Result<(), StoreError> {
        // Relaxed: it is one flag, read by the response of the same request.
        self.is_ended.store(true, Ordering::Relaxed);
        self.line.end(self.place).await
    }

    /// Whether this request has ended the pass, so that its response removes the cookie.
    pub(crate) fn is_ended(&self) -> bool {
        // Relaxed: as above.
        self.is_ended.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("number", &self.place.number).finish_non_exhaustive()
    }
}

impl Room for WaitingRoom {
    fn name(&self) -> &str {
        self.name()
    }

    fn numbers(&self) -> RoomNumbers {
        let now = self.status();
        let mut numbers = RoomNumbers::new(word(now.mode), now.rate);
        numbers.waiting = now.waiting;
        numbers.active = now.active;
        numbers.admitted = now.admitted;
        numbers.passed_over = now.passed_over;
        numbers.wait = now.wait;
        numbers
    }

    fn change<'a>(&'a self, rate: Option<&'a str>, mode: Option<&'a str>) -> RoomChange<'a> {
        Box::pin(async move {
            // Parsed before anything is changed.
            let mode = mode.map(str::parse::<LineMode>).transpose()?;
            if let Some(rate) = rate {
                self.set_rate(rate).await?;
            }
            if let Some(mode) = mode {
                self.set_mode(mode).await?;
            }
            Ok(())
        })
    }
}

fn word(mode: LineMode) -> &'static str {
    match mode {
        LineMode::Metered => "metered",
        LineMode::Paused => "paused",
        LineMode::Open => "open",
    }
}

/// Writes `metered`, `paused` or `open`.
impl fmt::Display for LineMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(*self))
    }
}

/// Reads what [`Display`](fmt::Display) writes.
///
/// ```
/// use sluicegate_overflow::line::LineMode;
///
/// assert_eq!("paused".parse::<LineMode>()?, LineMode::Paused);
/// let problem = "closed".parse::<LineMode>().unwrap_err().to_string();
/// assert_eq!(problem, "\"closed\" is not a mode of a waiting room: write metered, paused or open");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
impl FromStr for LineMode {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        [Self::Metered, Self::Paused, Self::Open].into_iter().find(|mode| word(*mode) == text).ok_or_else(
            || {
                let shown: String = text.chars().take(64).collect();
                let problem =
                    format!("{shown:?} is not a mode of a waiting room: write metered, paused or open");
                ConfigError::new(ConfigErrorKind::Unreadable, problem)
            },
        )
    }
}
