use super::*;
use crate::algorithm::{Anchor, Rule, State};
use crate::memory::beside::BucketAccount;
use crate::memory::slot::QuotaRules;
use crate::{Algorithm, Quota};

fn rule(algorithm: Algorithm) -> QuotaRules {
    let quota = Quota::new(1_000, std::time::Duration::from_millis(1));
    QuotaRules::new(Rule::new(algorithm, quota).expect("the quota is good"))
}

fn table<const W: usize, const S: usize>() -> Table<W, S> {
    Table::new(1, OnFull::Forget, &Arc::default())
}

fn put<const W: usize, const S: usize>(
    (table, rule): (&Table<W, S>, &QuotaRules),
    key: u64,
    state: State,
    now_us: u64,
) {
    let mut set = table.lock(0);
    let slot = set.find(key << 32);
    set.put(slot, key << 32, SlotWords { state, account: BucketAccount::born(key), plan: 0 }, rule, now_us);
}

fn get<const W: usize, const S: usize>(table: &Table<W, S>, key: u64) -> SlotWords {
    let set = table.lock(0);
    set.get(set.find(key << 32))
}

#[test]
fn a_set_begins_with_a_cache_line() {
    for keys in [1, 15, 1_000, 100_000] {
        let table = NarrowTable::new(keys, OnFull::Forget, &Arc::default());
        let last = table.set(table.sets - 1);
        assert_eq!([table.set(0), last].map(|set| set.state(0).as_ptr().addr() % 64), [0; 2], "{keys}");
    }
}

#[test]
fn where_a_level_drains_the_state_closest_to_rest_makes_room() {
    let (table, gcra) = (table::<1, 8>(), rule(Algorithm::Gcra));
    let evictions = || table.evictions.load(std::sync::atomic::Ordering::Relaxed);
    for (key, until_us) in [(1, 500), (2, 900), (3, 300), (4, 700), (5, 800), (6, 600)] {
        put((&table, &gcra), key, State::new(until_us, key), 100);
    }
    assert_eq!((get(&table, 3).state, evictions()), (State::REST, 1));
    put((&table, &gcra), 7, State::new(2_000, 7), 550); // key 1 is at rest by now: nothing is lost
    assert_eq!(
        (get(&table, 2).state, get(&table, 7).state, evictions()),
        (State::new(900, 2), State::new(2_000, 7), 1)
    );
    assert_eq!(table.in_use(550), 5);
}

#[test]
fn a_clock_that_is_set_back_a_little_finds_the_keys_that_came_to_rest_last() {
    let (table, gcra) = (table::<1, 8>(), rule(Algorithm::Gcra));
    for (key, until_us) in [(1, 900), (2, 300), (3, 500)] {
        put((&table, &gcra), key, State::new(until_us, key), 100);
    }
    for key in 4..=6 {
        put((&table, &gcra), key, State::new(2_000, key), 1_000);
    }
    let left = [1, 2, 3].map(|key| get(&table, key).state.until_us);
    assert_eq!(left, [900, 0, 500], "two slots were never used, then the one that rested longest goes");
}

#[test]
fn in_a_window_the_lowest_count_makes_room_although_all_end_together() {
    let (table, window) = (table::<2, 8>(), rule(Algorithm::FixedWindow(Anchor::Epoch)));
    for (key, count) in [(1, 999), (2, 10), (3, 9), (4, 11), (5, 10)] {
        put((&table, &window), key, State::new(1_000, count), 100);
    }
    assert_eq!([1, 2, 3, 4, 5].map(|key| get(&table, key).state.aux), [999, 0, 0, 11, 10]);
}

#[test]
fn what_is_kept_survives_the_way_through_the_table() {
    let far = (1 << 52) - 1;
    let (narrow, gcra) = (table::<1, 8>(), rule(Algorithm::Gcra));
    let (wide, window) = (table::<2, 8>(), rule(Algorithm::FixedWindow(Anchor::Epoch)));
    put((&narrow, &gcra), 4_095, State::new(far, 4_095), 0);
    put((&wide, &window), 9, State::new(far, u64::MAX), 0);
    assert_eq!(get(&narrow, 4_095), SlotWords { state: State::new(far, 4_095), ..SlotWords::default() });
    assert_eq!(get(&wide, 9), SlotWords { state: State::new(far, u64::MAX), ..SlotWords::default() });
    let full = table::<3, 16>();
    put((&full, &window), 9, State::new(far, u64::MAX), 0);
    let kept = SlotWords { state: State::new(far, u64::MAX), account: BucketAccount::born(9), plan: 0 };
    assert_eq!(get(&full, 9), kept);
    let copy = full.lock(0).copy();
    full.lock(0).reset(9 << 32);
    assert_eq!(get(&full, 9), SlotWords::default());
    full.lock(0).restore(&copy);
    assert_eq!(get(&full, 9), kept);
}

#[test]
fn new_keys_of_a_set_inherit_the_heaviest_debt_until_the_set_is_put_back() {
    let table = NarrowTable::new(5, OnFull::Inherit, &Arc::default());
    let gcra = rule(Algorithm::Gcra);
    let before = table.lock(0).copy();
    for (key, until_us) in [(1, 500), (2, 900), (3, 300), (4, 700), (5, 800), (6, 600)] {
        put((&table, &gcra), key, State::new(until_us, key), 100);
    }
    assert_eq!([3, 9].map(|key| get(&table, key).state), [State::new(300, 3); 2]);
    put((&table, &gcra), 7, State::new(2_000, 7), 200);
    put((&table, &gcra), 8, State::new(550, 8), 550); // at rest: it takes no room
    assert_eq!([1, 3, 9].map(|key| get(&table, key).state), [State::new(500, 1); 3]);
    put((&table, &gcra), 8, State::new(2_000, 8), 550);
    assert_eq!(get(&table, 9).state, State::new(600, 6), "that of before is over");
    assert_eq!(get(&table, 2).state, State::new(900, 2), "who is known inherits nothing");
    table.lock(0).restore(&before);
    assert_eq!(get(&table, 9), SlotWords::default());
}

#[test]
fn hashes_spread_over_all_sets() {
    let table = NarrowTable::new(5 * 7, OnFull::Forget, &Arc::default());
    let sets: std::collections::HashSet<_> =
        (0..=u32::MAX).step_by(1 << 24).map(|h| table.set_of(u64::from(h))).collect();
    assert_eq!(sets.len(), 7);
}

#[test]
fn plans_survive_the_way_through_the_table() {
    let gcra = rule(Algorithm::Gcra);
    let table = table::<3, 16>();
    let kept = SlotWords { state: State::new((1 << 52) - 1, 3), plan: u16::MAX, ..SlotWords::default() };
    let other = SlotWords { state: State::new(7, 4_095), plan: 1, ..SlotWords::default() };
    let mut set = table.lock(0);
    set.put(None, 1 << 32, kept, &gcra, 0);
    set.put(None, 2 << 32, other, &gcra, 0);
    let copy = set.copy();
    set.reset(1 << 32);
    assert_eq!(set.get(set.find(1 << 32)), SlotWords::default());
    set.restore(&copy);
    assert_eq!([1, 2].map(|key: u64| set.get(set.find(key << 32))), [kept, other]);
}
