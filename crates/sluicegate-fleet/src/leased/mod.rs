//! A store around a store that decides most requests in this process: [`Leased`].
//!
//! # Design
//! | file | content |
//! |---|---|
//! | `measure`, `time` | the time for which a leased unit may be spent under one quota, with a drifting clock |
//! | `units` | the units of one key: leases that are spent and end from the front |
//! | `rate`, `batch` | the rate of a key, and the number of units that are leased for it |
//! | `account`, `table` | all of this for one key, and for all keys in bounded memory |
//! | `decide`, `refill` | the decision of a request, and the answer that brings a lease |
//! | `close` | the end of a process |
//!
//! # Locking
//! Eight keys share a lock, which is held for a few dozen instructions and never across a call of the inner store or an await.
//! A request with several keys locks in ascending order.

mod account;
mod builder;
mod close;
mod decide;
mod measure;
mod policy;
mod refill;
mod table;
mod units;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluicegate_core::Store;
use sluicegate_core::clock::Clock;
use sluicegate_core::store::IntoStore;
pub use sluicegate_core::store::LeaseStatus;
use sluicegate_core::wrap::Within;

pub use self::builder::LeasedBuilder;
pub use self::close::Unreturned;
use self::policy::LeasedPolicy;
pub use self::policy::Unleased;
pub use self::refill::Batch;
use self::table::AccountTable;

/// Decides with units leased from the inner store, at the speed of memory.
///
/// Use it for limits that a fleet shares and that single keys use often. An instance takes a batch of units of a key, spends them without a
/// call, and asks for the next batch before they are gone. [`Decision::decided_by`](sluicegate_core::Decision::decided_by) is then
/// [`Lease`](sluicegate_core::store::DecidedBy::Lease).
///
/// It is not for limits of a few units, nor for rarely used keys: these are not leased, and cost an additional table
/// lookup.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redis = sluicegate_core::MemoryStore::new();
/// use sluicegate_core::Policy;
/// use sluicegate_resilient::Resilient;
/// use sluicegate_fleet::leased::Leased;
///
/// let store = Leased::new(Resilient::new(redis)); // in this order: an outage is not leased
/// let search = Policy::gcra("search", "1000/min").on(&store)?;
/// for _ in 0..100 {
///     assert!(search.check("ada").await?.is_allowed());
/// }
/// let status = store.status();
/// assert!(status.local > 80, "{status:?}"); // the other calls have brought the units
/// # Ok(())
/// # }
/// ```
///
/// # What it admits
/// It admits as much as the inner store: under a bucket with burst B that refills L units in P, at most `B + t * L / P` in any span t over
/// all instances; under windows at most the limit in each. To keep that, a leased unit is debited first, and spent only while it is wholly
/// in the bucket, or in the window in which it was debited. A unit that is not spent in time is lost: nobody spends it, and it drains as if
/// it had been spent.
///
/// | what happens | admitted in addition | lost |
/// |---|---|---|
/// | an instance dies | nothing | its held units, until they have drained or their window is over |
/// | a key is reset by another instance, or the store forgets it | the units held here, until the next refill of the key | nothing |
/// | a policy is replaced by another instance | the units held here, until this instance learns of it | the held units |
/// | a policy is replaced by this instance | nothing: held units are dropped at once | the held units |
/// | the store is out of reach | nothing: held units are spent until they end | nothing |
/// | a process is paused between its decision and its work | that work is late, as with every store | nothing |
/// | the local clock is slower than the store's by more than a thousandth | the units that drain in the difference | nothing |
///
/// Around a [`Sharded`](crate::Sharded) or [`Regional`](crate::Regional) store an answer covers one part, and does not show that another
/// part was reset or forgotten: units held of the key are spent until they are gone or end.
///
/// The units held of a key are at most four refills, and a refill is at most a [share](Batch::share) of the units that the key had left, or
/// of the units that came back since the store's last answer, up to a twentieth of the burst.
///
/// # What goes through it
/// It passes on policies that cannot be leased ([`Unleased`]; [`unleased`](Self::unleased) lists the open ones), and asks of other
/// policies that do not spend at once: reservations, charges, refunds, resets. A request with several limits is decided here if units are
/// held for all of them; otherwise the store decides all of it.
/// - **A refund** of a unit that was spent here goes to the store, with the time of the spend. Time that has passed since counts against
///   it, and while a lease is out the store lowers no bucket below its end: a refund gives too little rather than too much.
/// - **A peek** asks the store, and adds the units held here.
/// - **A reset** drops the units held here of the key, at once.
/// - **An answer of the fallback** never becomes a lease.
///
/// # The numbers of a decision made here
/// [`remaining`](sluicegate_core::Decision::remaining) is the number of units held here, which are certain. The store may have more.
/// [`reset_after`](sluicegate_core::Decision::reset_after) is the store's last answer, less the time since. Only the store refuses, so
/// every `retry_after` comes from it.
#[derive(Clone)]
pub struct Leased(Arc<LeasingStore>);

/// The part that limiters hold. Calls that have to wait clone its state.
struct LeasingStore(Arc<LeaseState>);

struct LeaseState {
    within: Within<Arc<LeasedPolicy>>,
    batch: Batch,
    table: AccountTable,
    clock: Arc<dyn Clock>,
    numbers: AtomicU64,
    is_closed: AtomicBool,
}

impl Leased {
    /// A store around `store`, with the defaults: see [`LeasedBuilder`].
    ///
    /// # Panics
    /// When `store` leases already, or has a higher [`Place`](sluicegate_core::store::Place): see [`LeasedBuilder::build`].
    pub fn new(store: impl IntoStore) -> Self {
        LeasedBuilder::new(store.into()).build().expect("the defaults are possible")
    }

    /// Starts building a store around `store` with other settings.
    pub fn builder(store: impl IntoStore) -> LeasedBuilder {
        LeasedBuilder::new(store.into())
    }

    /// Numbers for a gauge or a page that is read occasionally. It visits every leased key.
    pub fn status(&self) -> LeaseStatus {
        self.0.0.status()
    }

    /// The open policies that are not leased, by name, each with the reason.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_fleet::leased::{Leased, Unleased};
    ///
    /// let store = Leased::new(MemoryStore::new());
    /// let search = Policy::gcra("search", "1000/min").on(&store)?;
    /// let login = Policy::sliding_log("login", "500/h").on(&store)?;
    /// assert_eq!(store.unleased(), [("login".to_owned(), Unleased::Log)]);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn unleased(&self) -> Vec<(String, Unleased)> {
        let open = self.0.limiters().all().into_iter().map(|limiter| limiter.policy());
        open.filter_map(|policy| Some((policy.name().to_owned(), Unleased::why(&policy, &self.0.0.batch)?)))
            .collect()
    }
}

impl LeaseState {
    /// Whether it still leases.
    #[inline]
    fn is_open(&self) -> bool {
        // Acquire: pairs with the release in `give_back`.
        !self.is_closed.load(Ordering::Acquire)
    }

    /// A number that no other refill has.
    fn number(&self) -> u64 {
        // Relaxed: it only has to be a different number each time.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn status(&self) -> LeaseStatus {
        let (now_us, mut status) = (self.clock.now_us(), LeaseStatus::default());
        for mut set in self.table.each() {
            set.walk(|policy, _, account, counts| {
                let Some(measures) = policy.measures() else { return };
                counts.lost += account.units.expire(measures, now_us);
                let held = account.units.whole(measures.len());
                status.keys += usize::from(held > 0);
                status.held += held;
            });
            let counts = set.counts;
            status.local += counts.local;
            status.granted += counts.granted;
            status.returned += counts.returned;
            status.lost += counts.lost;
        }
        status
    }
}

sluicegate_core::store_handle!(Leased, status);
