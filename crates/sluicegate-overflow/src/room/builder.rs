//! The settings of a room: [`WaitingRoomBuilder`].

use std::fmt;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::support::random_secret;
use sluicegate_core::{ConfigError, Policy, Quota};
use sluicegate_tower::KeyExtractor;

use crate::line::{Line, LineHome, LineSettings};
use crate::page;
use crate::reply::Reply;
use crate::room::{PageFn, RoomParts, WaitingRoom};
use crate::ticket::Secrets;

/// Settings of a [`WaitingRoom`], made by [`WaitingRoom::builder`].
///
/// | for | set |
/// |---|---|
/// | a sale that opens at noon | [`opens_at`](Self::opens_at): early comers are drawn by lot |
/// | a shop that can handle 500 visitors at once | [`most_active`](Self::most_active), with a short [`pass_lasts`](Self::pass_lasts), and [`Pass::end`](crate::Pass::end) after the purchase |
/// | scripts that line up often | [`places_per_client`](Self::places_per_client) |
/// | several instances, or a restart in the middle | [`secrets`](Self::secrets), the same everywhere, and a line in Redis |
/// | a custom page | [`page`](Self::page) |
#[must_use = "a builder does nothing until it is built"]
pub struct WaitingRoomBuilder {
    name: String,
    rate: Result<Quota, ConfigError>,
    opens_at: Option<SystemTime>,
    most_active: Option<u64>,
    pass_lasts: Duration,
    longest_line: u64,
    client: Option<(u64, Arc<dyn KeyExtractor>)>,
    secrets: Vec<Vec<u8>>,
    clock: Arc<dyn Clock>,
    page: Arc<PageFn>,
}

impl WaitingRoomBuilder {
    pub(super) fn new(name: String, rate: Result<Quota, ConfigError>) -> Self {
        Self {
            name,
            rate,
            opens_at: None,
            most_active: None,
            pass_lasts: Duration::from_secs(900),
            longest_line: 1_000_000,
            client: None,
            secrets: Vec::new(),
            clock: Arc::new(SystemClock::new()),
            page: Arc::new(page::page),
        }
    }

    /// Lets no visitor in before this time. Visitors that come before it are ranked by lot, so that coming in the first millisecond is no
    /// advantage; later ones line up behind them. Default: the room is open.
    pub fn opens_at(mut self, time: SystemTime) -> Self {
        self.opens_at = Some(time);
        self
    }

    /// Sets the most passes that are valid at once: the next visitor enters when one has expired or [ended](crate::Pass::end). A pass is
    /// bound to one client only if [`places_per_client`](Self::places_per_client) is set; otherwise everyone with a copy can use it. While
    /// the room is [open](crate::line::LineMode::Open) to all, visitors enter above this number, and those above it are not counted.
    /// Default: no bound except the rate.
    pub fn most_active(mut self, passes: u64) -> Self {
        self.most_active = Some(passes);
        self
    }

    /// Sets how long a visitor that was let in may stay. Default: 15 minutes.
    pub fn pass_lasts(mut self, lasts: Duration) -> Self {
        self.pass_lasts = lasts;
        self
    }

    /// Sets the most visitors that may wait; the next one is told that the room is full. Default: 1,000,000, which takes 24 to 48 MB.
    pub fn longest_line(mut self, places: u64) -> Self {
        self.longest_line = places;
        self
    }

    /// Sets the most places that one client may have, by this key: [`ClientIp`](sluicegate_tower::ClientIp) takes an IPv6 /64 for one
    /// client, and `key_from_extension` suits accounts. Without it a script can take any number of places, and use the best of its lots.
    /// Requests without a key share the places of one client.
    ///
    /// A ticket and a pass are valid only for the client with the key that they were issued to. If the key is an address, a visitor that
    /// changes its network loses its place: use an account or a session as the key for mobile visitors.
    ///
    /// A visitor whose first answer is lost comes without a ticket and needs another place, so allow at least 2. The line keeps a digest of
    /// the key, keyed with the secret: no address can be read in Redis. With another secret, places are counted anew. Default: any number.
    pub fn places_per_client(mut self, places: u64, key: impl KeyExtractor) -> Self {
        self.client = Some((places, Arc::new(key)));
        self
    }

    /// Sets the secret that signs tickets, of at least 16 bytes, and the former secret, if its tickets have to stay valid: each is signed anew
    /// when its visitor shows it. All instances of a service need the same secrets. Default: drawn at random, so that tickets are valid only in
    /// this process.
    pub fn secrets(mut self, current: impl AsRef<[u8]>, former: Option<&[u8]>) -> Self {
        let former = former.map(<[u8]>::to_vec);
        self.secrets = [current.as_ref().to_vec()].into_iter().chain(former).collect();
        self
    }

    /// Draws the page that a browser gets: a whole document, which refreshes itself after [`Reply::refresh_seconds`]. Default: a plain
    /// page.
    pub fn page(mut self, page: impl Fn(&Reply<'_>) -> String + Send + Sync + 'static) -> Self {
        self.page = Arc::new(page);
        self
    }

    /// Sets the clock of tickets, and of a line in memory: it counts from the Unix epoch. Default: the machine's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the room, with its line in this home.
    ///
    /// # Errors
    /// When a rate cannot be read or is 0, a name does not match `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`, a bound or a span is 0, a secret has
    /// less than 16 bytes, or the home of the line cannot keep the settings. The error names the value.
    pub fn build(self, home: impl LineHome) -> Result<WaitingRoom, ConfigError> {
        self.build_with(|settings, clock| home.open(settings, clock))
    }

    /// Takes over the settings that all rooms of a file share.
    pub(crate) fn shared(self, secrets: &[Vec<u8>], page: &Arc<PageFn>, clock: &Arc<dyn Clock>) -> Self {
        Self { secrets: secrets.to_vec(), page: Arc::clone(page), clock: Arc::clone(clock), ..self }
    }

    /// Makes the room, on the line that this returns for its settings.
    pub(crate) fn build_with(
        self,
        line: impl FnOnce(LineSettings, Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError>,
    ) -> Result<WaitingRoom, ConfigError> {
        let name = &self.name.clone();
        let rate = checked(name, self.rate)?;
        let places_per_client = self.client.as_ref().map(|(places, _)| *places);
        for (what, value) in [
            ("most_active(0)", self.most_active),
            ("longest_line(0)", Some(self.longest_line)),
            ("places_per_client(0)", places_per_client),
            ("pass_lasts(0s)", u64::try_from(self.pass_lasts.as_millis()).ok()),
        ] {
            if value == Some(0) {
                let problem =
                    format!("{what} of the waiting room {name:?} would let nobody in: use at least 1");
                return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
            }
        }
        let secrets = if self.secrets.is_empty() { vec![random_secret()] } else { self.secrets };
        let opens_at = self.opens_at.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let settings = LineSettings {
            name: name.clone(),
            rate,
            opens_at_us: opens_at.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
            most_active: self.most_active,
            pass_lasts: self.pass_lasts,
            longest_line: self.longest_line,
            places_per_client,
        };
        Ok(WaitingRoom(Arc::new(RoomParts {
            secrets: Secrets::new(name, &secrets)?,
            line: line(settings, Arc::clone(&self.clock))?,
            name: name.clone(),
            clock: self.clock,
            client: self.client.map(|(_, key)| key),
            page: self.page,
            lots: RandomState::new(),
            drawn: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            measured_second: AtomicU64::new(0),
        })))
    }
}

impl fmt::Debug for WaitingRoomBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRoomBuilder")
            .field("name", &self.name)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// Checks that the rate can be kept and that the name can be used, by building a policy of them.
pub(super) fn checked(name: &str, rate: Result<Quota, ConfigError>) -> Result<Quota, ConfigError> {
    let rate = rate?.burst(1);
    if let Some(period) = rate.calendar() {
        let problem = format!(
            "the turns of a waiting room are spaced evenly, and each {period} of the calendar has another length: use a span, as 30d"
        );
        return Err(ConfigError::new(ConfigErrorKind::Quota, problem).in_policy(name));
    }
    if let Some(algorithm) = rate.algorithm() {
        let problem = format!(
            "{rate} names an algorithm, and the turns of a waiting room are spaced evenly: leave \"by {algorithm}\" out"
        );
        return Err(ConfigError::new(ConfigErrorKind::Quota, problem).in_policy(name));
    }
    Policy::gcra(name, rate).build()?;
    Ok(rate)
}
