//! The budget warnings given so far, in fixed memory: [`GivenWarnings`].

/// The keys of a policy whose warnings are remembered, 16 bytes each.
const SETS: usize = 1_024;
const WAYS: usize = 4;
const SECOND_US: u64 = 1_000_000;

/// The number of warnings that were given of each budget of a key in its period.
///
/// A slot is free again when its period has ended. While all four slots of a set are taken, further keys of that set are not remembered.
pub(super) struct GivenWarnings(Box<[GivenWarning]>);

/// A budget with warnings given.
#[derive(Clone, Copy)]
struct GivenWarning {
    digest: u64,
    /// The end of the period, in whole seconds since the epoch, as borders of a calendar are.
    until_s: u32,
    parts: u8,
}

impl GivenWarnings {
    pub(super) fn new() -> Self {
        Self(vec![GivenWarning { digest: 0, until_s: 0, parts: 0 }; SETS * WAYS].into())
    }

    /// Stores the number of thresholds that were warned about, and returns the number stored before; `None` if it is unknown because there was no
    /// room to remember it. The digest identifies a budget in one period.
    pub(super) fn give(&mut self, digest: u64, until_us: u64, now_us: u64, parts: usize) -> Option<usize> {
        let seconds = |us: u64| u32::try_from(us / SECOND_US).unwrap_or(u32::MAX);
        let parts = u8::try_from(parts).unwrap_or(u8::MAX);
        let set = usize::try_from(digest % SETS as u64).unwrap_or(0) * WAYS;
        let set = self.0.get_mut(set..set + WAYS)?;
        let is_of = |place: &GivenWarning| place.until_s > 0 && place.digest == digest;
        if let Some(place) = set.iter_mut().find(|place| is_of(place)) {
            let before = place.parts;
            place.parts = before.max(parts);
            return Some(before.into());
        }
        let place = set.iter_mut().find(|place| place.until_s <= seconds(now_us))?;
        *place = GivenWarning { digest, until_s: seconds(until_us), parts };
        Some(0)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
