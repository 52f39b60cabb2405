//! Samples against a set of all keys.

use std::collections::HashSet;

use sluicegate_core::Key;

use crate::unusual::sample::{KeySample, MINUTE};

fn see(sample: &mut KeySample, keys: impl Iterator<Item = u64>, slot: u32) {
    keys.for_each(|key| _ = sample.see(Key::from(key).as_ref(), slot));
}

fn near(estimate: f64, truth: f64, error: f64) -> bool {
    (estimate - truth).abs() <= 5.0 * error.max(0.1)
}

#[test]
fn few_keys_are_counted_exactly() {
    let mut sample = KeySample::new();
    see(&mut sample, (0..300).chain(0..100), 1_000);
    let figures = sample.figures(1_000);
    assert_eq!((figures.new, figures.error, figures.by_new), (300.0, 0.0, 1.0));
    assert_eq!(figures.by_busiest, 6.0 / 400.0, "three keys of two requests");
    see(&mut sample, 0..300, 1_000 + 20 * MINUTE);
    let later = sample.figures(1_000 + 20 * MINUTE);
    assert_eq!((later.new, later.by_new), (0.0, 0.0), "they are known");
    assert_eq!(sample.figures(1_000 + 22 * MINUTE).by_busiest, 0.0, "and not of this minute");
}

#[test]
fn many_keys_are_estimated_within_the_error_that_is_told() {
    let mut sample = KeySample::new();
    let mut all = HashSet::new();
    for (minute, keys) in [2_000_u64, 40_000, 100].into_iter().enumerate() {
        let slot = 1_000 + u32::try_from(minute).unwrap() * MINUTE;
        let begin = 1_000_000 * minute as u64;
        see(&mut sample, begin..begin + keys, slot);
        all.extend(begin..begin + keys);
        let figures = sample.figures(slot);
        // Of 100 keys one may be in the sample, or none.
        assert!(
            near(figures.new, keys as f64, figures.error.max(200.0)),
            "{} of {keys} ± {}",
            figures.new,
            figures.error
        );
    }
}

#[test]
fn after_a_flood_it_learns_more_keys_and_takes_none_of_them_for_new() {
    let mut sample = KeySample::new();
    see(&mut sample, 0..200, 1_000);
    see(&mut sample, 10_000..30_000, 1_000 + MINUTE);
    // For two days only the first keys come.
    let mut slot = 1_000 + 2 * MINUTE;
    let end = slot + 2 * 24 * 60 * MINUTE;
    while slot < end {
        see(&mut sample, 0..200, slot);
        let figures = sample.figures(slot);
        assert_eq!(figures.new, 0.0, "in slot {slot}");
        slot += 5 * MINUTE;
        if slot % (60 * MINUTE) < 5 * MINUTE {
            see(&mut sample, 50_000..51_000, slot);
            slot += 2 * MINUTE;
        }
    }
}
