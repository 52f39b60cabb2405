//! Small things that every crate of the family needs once: locks, log lines that are rare, random numbers and rounded times.
//!
//! They are for these crates only, so they may change in any version.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Locks, also after a panic of another holder: the code under these locks leaves its state usable at each step.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, as [`lock`] does.
#[inline]
pub fn read<T: ?Sized>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, as [`lock`] does.
#[inline]
pub fn write<T: ?Sized>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

/// A log line that is written at most once a second.
///
/// It is for lines that each request of a flood would write, so that a client cannot fill the disk.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// A line that has not been written yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether the line is to be written now.
    pub fn is_due(&self) -> bool {
        self.is_due_at(Instant::now())
    }

    fn is_due_at(&self, now: Instant) -> bool {
        // Another thread that writes it now writes it for this one, too.
        let Ok(mut written_at) = self.0.try_lock() else { return false };
        let is_due = written_at.is_none_or(|at| now.saturating_duration_since(at) >= Duration::from_secs(1));
        if is_due {
            *written_at = Some(now);
        }
        is_due
    }
}

/// Shows a handle by its name and one value of it, `debug_as!(Keys, keys => keys.len());`, or a type by some of its fields,
/// `debug_as!(Builder { keys, clock });`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as {
    ($handle:ident$(<$($of:tt),+>)?, $this:ident => $value:expr) => {
        impl$(<$($of),+>)? ::std::fmt::Debug for $handle$(<$($of),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $this = self;
                f.debug_tuple(stringify!($handle)).field(&$value).finish()
            }
        }
    };
    ($type:ident$(<$($of:tt),+>)? { $($field:ident),* }) => {
        impl$(<$($of),+>)? ::std::fmt::Debug for $type$(<$($of),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}

/// The setters of a builder that assign the field of their name: `keys(keys: usize);` as it is, `clock(clock: impl Clock) =>
/// Arc::new(clock);` as another value. A first line `const;` makes them constant functions.
///
/// With the name of the type in front, all changes that are one statement: `Builder pub fn keys(it, keys: usize) { it.settings.keys = keys }`,
/// and for a small value in registers `small Ask<'a> fn of(it, receipt: &'a Receipt) { it.receipt = Some(receipt) }`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    (const; $($(#[$doc:meta])* $field:ident($value:ident: $type:ty);)*) => {
        $($(#[$doc])*
        pub const fn $field(mut self, $value: $type) -> Self {
            self.$field = $value;
            self
        })*
    };
    ($of:ident $(<$life:lifetime>)? $($(#[$meta:meta])* pub fn $name:ident($it:ident $(, $value:ident: $type:ty)*) $change:block)+) => {
        impl $(<$life>)? $of $(<$life>)? {$(
            $(#[$meta])*
            pub fn $name(mut self $(, $value: $type)*) -> Self {
                let $it = &mut self;
                $change
                self
            }
        )+}
    };
    (small $of:ident $(<$life:lifetime>)? $($(#[$meta:meta])* fn $name:ident $args:tt $change:block)+) => {
        $crate::setters! { $of $(<$life>)? $($(#[$meta])* #[inline] #[must_use] pub fn $name $args $change)+ }
    };
    ($($(#[$doc:meta])* $field:ident($given:ident: $type:ty) $(=> $value:expr)?;)*) => {
        $($(#[$doc])*
        pub fn $field(mut self, $given: $type) -> Self {
            self.$field = $crate::setters!(@ $given $($value)?);
            self
        })*
    };
    (@ $given:ident) => { $given };
    (@ $given:ident $value:expr) => { $value };
}

/// A random number from the system's source, which seeds hashers.
pub fn random() -> u64 {
    // Each new state has other keys.
    RandomState::new().hash_one(0)
}

/// A random secret of 256 bits, for this process.
pub fn random_secret() -> Vec<u8> {
    (0..4).flat_map(|_| random().to_be_bytes()).collect()
}

/// Whole seconds, rounded up, so that no client comes back too early.
#[inline]
pub fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// Whole milliseconds, rounded up, so that no client comes back too early.
#[inline]
pub fn ceil_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_at_once_and_then_once_a_second() {
        let (line, began) = (Seldom::new(), Instant::now());
        let due = [0, 1, 999, 1_000, 1_001, 1_999, 2_000, 9_000]
            .map(|millis| line.is_due_at(began + Duration::from_millis(millis)));
        assert_eq!(due, [true, false, false, true, false, false, true, true]);
    }

    #[test]
    fn times_are_rounded_up_to_the_longest() {
        for (nanos, seconds, millis) in [
            (0, 0, 0),
            (1, 1, 1),
            (999_999_999, 1, 1_000),
            (1_000_000_000, 1, 1_000),
            (1_000_000_001, 2, 1_001),
        ] {
            let span = Duration::from_nanos(nanos);
            assert_eq!((ceil_seconds(span), ceil_millis(span)), (seconds, millis), "{span:?}");
        }
        assert_eq!((ceil_seconds(Duration::MAX), ceil_millis(Duration::MAX)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn no_two_secrets_are_alike() {
        let secret = random_secret();
        assert_eq!(secret.len(), 32);
        assert_ne!(secret, random_secret());
    }
}
