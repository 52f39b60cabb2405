//! The servers that asked for a pause, and its end.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use sluicegate_core::Key;
use sluicegate_core::support::lock;
use tokio::time::Instant;

/// The most servers that are remembered; beyond that, those with the longest holds are kept.
const MOST: usize = 1_024;

/// The end of each hold, by key. One short lock per call, never held across an await.
#[derive(Debug, Default)]
pub(crate) struct HostHolds(Mutex<HashMap<Key, Instant>>);

impl HostHolds {
    /// The end of the hold of this key, if it is not over.
    pub(crate) fn until(&self, key: &Key, now: Instant) -> Option<Instant> {
        let mut holds = lock(&self.0);
        let until = *holds.get(key)?;
        if until > now {
            return Some(until);
        }
        holds.remove(key);
        None
    }

    /// Holds calls until `until`, or until the end of an earlier hold if that is later: responses overtake each other, and an
    /// older response does not end a hold.
    pub(crate) fn hold(&self, key: &Key, until: Instant, now: Instant) {
        let mut holds = lock(&self.0);
        if let Some(earlier) = holds.get_mut(key) {
            *earlier = until.max(*earlier);
            return;
        }
        if holds.len() >= MOST {
            holds.retain(|_, until| *until > now);
        }
        if holds.len() >= MOST {
            let soonest = holds.iter().min_by_key(|(_, until)| **until);
            let Some((soonest, ends)) = soonest.map(|(key, ends)| (key.clone(), *ends)) else { return };
            if ends >= until {
                return;
            }
            holds.remove(&soonest);
        }
        holds.insert(key.clone(), until);
    }
}

/// The moment after that span; a moment that cannot be represented counts as one in 30 years.
pub(super) fn after(now: Instant, span: Duration) -> Instant {
    now.checked_add(span).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_servers_the_one_that_waits_least_is_forgotten() {
        let (holds, now) = (HostHolds::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for server in 0..MOST as u64 {
            holds.hold(&server.into(), after(10 + server), now);
        }
        holds.hold(&"short".into(), after(5), now);
        assert_eq!((holds.until(&"short".into(), now), holds.until(&0.into(), now)), (None, Some(after(10))));
        holds.hold(&"long".into(), after(5_000), now);
        assert_eq!(
            (holds.until(&"long".into(), now), holds.until(&0.into(), now)),
            (Some(after(5_000)), None)
        );
        holds.hold(&"later".into(), after(6_000), after(5_000));
        assert_eq!(holds.0.lock().unwrap().len(), 1, "what is over takes no room once room is needed");
    }

    #[test]
    fn a_wait_is_never_shortened() {
        let (holds, now) = (HostHolds::default(), Instant::now());
        let (soon, late) = (now + Duration::from_secs(1), now + Duration::from_secs(9));
        for until in [late, soon] {
            holds.hold(&"host".into(), until, now);
        }
        assert_eq!((holds.until(&"host".into(), now), holds.until(&"host".into(), late)), (Some(late), None));
    }
}
