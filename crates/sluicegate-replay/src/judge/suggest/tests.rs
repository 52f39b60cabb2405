//! The answer from a sample, against the exact one.

use crate::judge::random::TestRandom;
use crate::judge::suggest::record::LogRecord;
use crate::judge::suggest::*;

const MINUTE_US: u64 = 60_000_000;
const KEYS: u32 = 25_000;

/// Independent logs.
const LOGS: u32 = 44;

/// A log of a minute: which key comes when. Most keys come a few times, some often.
fn log(seed: u32) -> Vec<RecordedAsk> {
    let mut random = TestRandom(seed.into());
    let mut events = Vec::new();
    // Each log has other numbers, so that each sample is another one.
    for key in seed * KEYS..(seed + 1) * KEYS {
        let most = if random.below(20) == 0 { 60 } else { 9 };
        for _ in 0..=random.below(most) {
            events.push(RecordedAsk::plain(key, random.below(MINUTE_US)));
        }
    }
    events.sort_by_key(|event| event.at_us);
    events
}

/// The record of a log in room for this many events.
fn kept(events: &[RecordedAsk], room: usize) -> RowRecord {
    let mut record = LogRecord::new(1, room * size_of::<RecordedAsk>());
    events.iter().for_each(|event| record.keep(0, *event));
    let mut kept = record.rows.remove(0);
    kept.by_key();
    kept
}

/// The number of requests of each key. A window of the whole log rejects all of them that are above its limit.
fn asked(events: &[RecordedAsk]) -> Vec<u64> {
    let mut asked = vec![0; KEYS as usize];
    events.iter().for_each(|event| asked[(event.key % KEYS) as usize] += 1);
    asked
}

fn window() -> Policy {
    Policy::fixed_window("p", "5/min").build().unwrap()
}

#[test]
fn the_interval_of_a_sample_covers_the_truth_as_often_as_it_says() {
    let policy = window();
    let (mut covered, mut cases) = (0, 0);
    for seed in 0..LOGS {
        let events = log(seed);
        let (room, limit) = [(140_000, 5), (125_000, 4)][(seed % 2) as usize];
        let sample = kept(&events, room);
        assert!(sample.events.len() <= room && room < events.len() && !sample.is_lost);
        let asked = asked(&events);
        let search = RowSearch::new(&policy, &sample);
        let needs: Vec<u64> =
            search.keys.iter().map(|key| asked[(key.events[0].key % KEYS) as usize]).collect();
        let found = search.count(limit, &needs).expect("the policy can have it");
        let truth: u64 = asked.iter().map(|asked| asked.saturating_sub(limit)).sum();
        assert!(found.uncertainty > 0 && found.uncertainty < truth / 10, "{found:?} and {truth}");
        covered += u32::from(found.rejected.abs_diff(truth) <= found.uncertainty);
        cases += 1;
    }
    println!("{covered} of {cases}");
    // The mean is 42; it is at least 39 with a probability of 97 %, if the intervals are right.
    assert!(covered >= 39, "{covered} of {cases}");
}

#[test]
fn a_sample_suggests_the_limit_that_all_of_the_log_does() {
    let events = log(99);
    let truth = |limit: u64| asked(&events).iter().map(|asked| asked.saturating_sub(limit)).sum::<u64>();
    let share: Share = "20%".parse().unwrap();
    let exact =
        (1..).find(|limit| share.covers(truth(*limit), events.len() as u64)).expect("some limit is enough");
    let found = suggest(&window(), &kept(&events, 125_000), share).expect("there is one");
    assert!(found.limit.abs_diff(exact) <= 1, "{found:?} and {exact}");
    assert!(found.rejected.abs_diff(truth(found.limit)) <= found.uncertainty, "{found:?}");
}
