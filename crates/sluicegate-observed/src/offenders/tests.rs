use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use sluicegate_core::key::{AsKey, KeyKind};
use sluicegate_tests::random::Random;

use crate::offenders::sketch::{Sketch, TURN_US};
use crate::offenders::*;

/// A number from 0 to 1.
fn fraction(random: &mut Random) -> f64 {
    random.fraction()
}

/// Keys of which the n-th comes n^-exponent as often as the first.
fn zipf(keys: u32, exponent: f64) -> impl Fn(&mut Random) -> u32 {
    let mut sums = Vec::new();
    let total = (1..=keys).fold(0.0, |sum, rank| {
        sums.push(sum + f64::from(rank).powf(-exponent));
        sums[sums.len() - 1]
    });
    move |random| {
        let point = fraction(random) * total;
        u32::try_from(sums.partition_point(|sum| *sum < point)).unwrap()
    }
}

fn ask(offenders: &Offenders, key: impl AsKey, remaining: u64, capacity: u64) {
    let quota = |remaining| QuotaStatus::at_rest((0, 0), capacity).with_remaining(remaining);
    // The quota that is nearest to its limit counts.
    key.with_key(|key| offenders.asked(key, [quota(capacity), quota(remaining)].iter(), 0));
}

fn refuse(offenders: &Offenders, key: impl AsKey, now_us: u64) {
    key.with_key(|key| offenders.refused(key, None, false, now_us));
}

/// Each key that stands for more than 1/64 of the refusals is listed, and each count is right but for its error.
fn assert_right(offenders: &Offenders, exact: &HashMap<Ipv4Addr, u64>, now_us: u64, seed: u64) {
    let total: u64 = exact.values().sum();
    let listed = offenders.most_refused(now_us);
    for (key, count) in exact.iter().filter(|(_, count)| **count * 64 > total) {
        assert!(
            listed.iter().any(|of| of.key == key.to_string()),
            "seed {seed}: {key} with {count} of {total}"
        );
    }
    for of in &listed {
        let count = exact.get(&of.key.parse().unwrap()).copied().unwrap_or(0);
        let range = of.rejected - of.error..=of.rejected;
        assert!(range.contains(&count), "seed {seed}: {count} is not in {range:?}: {of:?}");
        assert!((of.share - of.rejected as f64 / total as f64).abs() < 1e-9, "seed {seed}: {of:?}");
    }
}

#[test]
fn no_key_above_a_64th_is_missing_and_no_count_is_beyond_its_error() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let keys = 50 + u32::try_from(random.below(5_000)).unwrap();
        let next = zipf(keys, 0.3 + 1.7 * fraction(&mut random));
        // Other keys are hot in the second five minutes; sometimes they are the same.
        let shift = if random.below(3) == 0 { 0 } else { 40 };
        let (offenders, mut exact) = (Offenders::new(), HashMap::new());
        for turn in 0..2 {
            for _ in 0..500 + random.below(4_000) {
                let key = Ipv4Addr::from(next(&mut random) + shift * turn);
                refuse(&offenders, key, TURN_US * u64::from(turn));
                *exact.entry(key).or_default() += 1;
            }
        }
        assert_right(&offenders, &exact, TURN_US, seed);
    }
}

#[test]
fn traffic_that_is_made_to_push_keys_out_pushes_out_none_above_a_64th() {
    let (offenders, mut exact) = (Offenders::new(), HashMap::new());
    let mut came = |key: u32| {
        refuse(&offenders, Ipv4Addr::from(key), 0);
        *exact.entry(Ipv4Addr::from(key)).or_default() += 1;
    };
    // One more key than there is room for, in a circle; then a flood of which none comes twice; and two that come in it.
    (0..65 * 40).for_each(|index| came(index % 65));
    for index in 0..6_000 {
        came(1_000 + index);
        if index % 20 == 0 {
            came(7);
            came(500);
        }
    }
    assert_right(&offenders, &exact, 0, 0);
    let first = &offenders.most_refused(0)[0];
    assert_eq!(first.key, "0.0.0.7", "the one with the most certain refusals is first");
}

/// Ten keys of three refusals each were once shown with 25,000.
#[test]
fn in_a_flood_of_many_keys_none_stands_out_but_one_that_comes_often() {
    for (seed, hot) in [(1, false), (2, true), (3, false), (4, true)] {
        let (offenders, mut random) = (Offenders::new(), Random::new(seed));
        for index in 0..300_000_u32 {
            refuse(&offenders, Ipv4Addr::from(index % 100_000), TURN_US * u64::from(index / 200_000));
            if random.below(64) == 0 {
                ask(&offenders, Ipv4Addr::from(index % 100_000), 1, 2);
            }
            if hot && index % 20 == 0 {
                refuse(&offenders, Ipv4Addr::BROADCAST, TURN_US * u64::from(index / 200_000));
            }
        }
        let listed = offenders.most_refused(TURN_US);
        let shown: Vec<&str> = listed.iter().filter(|of| of.stands_out()).map(|of| &*of.key).collect();
        assert_eq!(shown, if hot { vec!["255.255.255.255"] } else { vec![] }, "seed {seed}");
        let asking = offenders.most_asking(TURN_US);
        assert!(!asking.is_empty() && !asking.iter().any(Asker::stands_out), "seed {seed}: {asking:?}");
    }
}

#[test]
fn each_key_with_more_than_one_in_32_of_the_refusals_stands_out() {
    for seed in 0..50 {
        let (offenders, mut random, mut exact) = (Offenders::new(), Random::new(seed), HashMap::new());
        let next = zipf(5_000, 0.5 + fraction(&mut random));
        for turn in 0..2 {
            for _ in 0..3_000 {
                let key = Ipv4Addr::from(next(&mut random));
                refuse(&offenders, key, TURN_US * turn);
                *exact.entry(key.to_string()).or_insert(0_u64) += 1;
            }
        }
        let listed = offenders.most_refused(TURN_US);
        for (key, _) in exact.iter().filter(|(_, count)| **count * 32 > 6_000) {
            assert!(listed.iter().any(|of| of.key == *key && of.stands_out()), "seed {seed}: {key}");
        }
    }
}

#[test]
fn few_keys_are_counted_exactly() {
    let offenders = Offenders::new();
    for (key, times) in [("b", 2), ("a", 5), ("c", 1)] {
        let key = Key::from(key).of_kind(KeyKind::Name);
        (0..times).for_each(|_| refuse(&offenders, &key, 0));
    }
    let listed = offenders.most_refused(0);
    let counts: Vec<_> = listed.iter().map(|of| (&*of.key, of.rejected, of.error)).collect();
    assert_eq!(counts, [("\"a\"", 5, 0), ("\"b\"", 2, 0), ("\"c\"", 1, 0)]);
}

#[test]
fn a_refusal_is_forgotten_after_5_to_10_minutes() {
    for second in [0, 120, 299] {
        let offenders = Offenders::new();
        let at_us = 50 * TURN_US + second * 1_000_000;
        refuse(&offenders, Ipv4Addr::LOCALHOST, at_us);
        assert_eq!(offenders.most_refused(at_us + TURN_US).len(), 1, "after 5 minutes");
        assert_eq!(offenders.most_refused(at_us + 2 * TURN_US), [], "after 10 minutes");
    }
}

#[test]
fn a_clock_that_is_set_back_or_far_ahead_stops_no_count() {
    let offenders = Offenders::new();
    let year = 365 * 24 * 12 * TURN_US;
    for now_us in [year, year - TURN_US, 100 * year, year, year + 1] {
        refuse(&offenders, Ipv4Addr::LOCALHOST, now_us);
        assert!(!offenders.most_refused(now_us).is_empty(), "at {now_us}");
    }
    assert_eq!(offenders.most_refused(year)[0].rejected, 2, "nothing of another year");
}

/// The planted secrets are looked for in all that is listed.
#[test]
fn addresses_and_names_are_in_clear_and_secrets_never() {
    let offenders = Offenders::new();
    let address = Ipv4Addr::new(203, 0, 113, 9);
    let long = "planted-".repeat(40);
    let secrets = [
        Key::from("planted-1"),
        Key::from(("planted-2", address)),
        Key::from(&*long),
        Key::from((Key::from("/login").of_kind(KeyKind::Name), "planted-3")),
        Key::from(b"planted-4"),
    ];
    for key in &secrets {
        refuse(&offenders, key, 0);
        ask(&offenders, key, 1, 2);
    }
    refuse(&offenders, address, 0);
    refuse(&offenders, Key::from(("/login", address)).of_kind(KeyKind::Address), 0);
    refuse(&offenders, Key::from("ada").of_kind(KeyKind::Name), 0);

    let listed = offenders.most_refused(0);
    let all = format!("{listed:?} {:?}", offenders.most_asking(0));
    assert!(!all.contains("planted") && !all.contains("70, 6c, 61"), "{all}");
    let of_kind = |kind| listed.iter().filter(move |of| of.kind == kind).map(|of| &*of.key);
    let mut addresses: Vec<_> = of_kind(OffenderKind::Address).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["\"/login\" 203.0.113.9", "203.0.113.9"]);
    assert_eq!(of_kind(OffenderKind::Name).collect::<Vec<_>>(), ["\"ada\""]);
    for key in &secrets {
        // As logs and explanations show it.
        let digest = format!("{key:?}");
        assert_eq!(of_kind(OffenderKind::Digest).filter(|text| digest == format!("Key({text})")).count(), 1);
    }
}

#[test]
fn a_reference_finds_the_key_while_it_is_listed() {
    let offenders = Offenders::new();
    let keys = [Key::from("sk_live_51H"), Key::from(("ada", 7)), Key::from(Ipv4Addr::LOCALHOST)];
    for key in &keys {
        refuse(&offenders, key, 0);
    }
    let listed = offenders.most_refused(0);
    for key in &keys {
        let found = |of: &&Offender| offenders.find(&of.reference).as_ref() == Some(key);
        assert_eq!(listed.iter().filter(found).count(), 1);
    }
    for unknown in ["", "0", "0000000000000000", "sk_live_51H", "zzzzzzzzzzzzzzzz", "00000000000000000"] {
        assert_eq!(offenders.find(unknown), None, "{unknown}");
    }
    offenders.most_refused(2 * TURN_US);
    assert_eq!(offenders.find(&listed[0].reference), None, "it is listed no more");

    refuse(&offenders, "x".repeat(100), 2 * TURN_US);
    let long = offenders.most_refused(2 * TURN_US).swap_remove(0);
    assert_eq!(offenders.find(&long.reference), None, "it is not kept whole");
}

#[test]
fn a_refused_key_is_shown_with_the_wait_that_is_left_and_its_suspension() {
    let (offenders, second) = (Offenders::new(), Duration::from_secs(1));
    let shown = |now_us| {
        let first = offenders.most_refused(now_us).swap_remove(0);
        (first.retry_after, first.suspended_until)
    };
    let refuse = |wait, is_suspended, now_us| {
        Ipv4Addr::LOCALHOST.with_key(|key| offenders.refused(key, wait, is_suspended, now_us));
    };
    refuse(Some(7 * second), false, 0);
    refuse(Some(5 * second), false, 1_000_000);
    assert_eq!(shown(1_000_000), (5 * second, None), "the last refusal counts");
    assert_eq!((shown(2_000_000).0, shown(7_000_000).0), (4 * second, Duration::ZERO));
    refuse(Some(30 * second), true, 2_000_000);
    assert_eq!(shown(2_000_000), (30 * second, Some(UNIX_EPOCH + 32 * second)));
    assert_eq!(shown(32_000_000), (Duration::ZERO, None), "the suspension is over");
    refuse(None, false, 40_000_000);
    assert_eq!(shown(40_000_000), (Duration::ZERO, None), "no wait helps");
    refuse(Some(Duration::MAX), true, 50_000_000);
    assert!(shown(50_000_000).0 > second * u32::MAX);
}

#[test]
fn a_key_that_is_refused_nothing_is_found_by_what_it_asks() {
    let offenders = Offenders::new();
    for asked in 0..100_u64 {
        let slow = Ipv4Addr::from(u32::try_from(asked).unwrap());
        ask(&offenders, slow, 9, 10);
        ask(&offenders, Ipv4Addr::BROADCAST, 100 - asked, 300);
    }
    let most = &offenders.most_asking(0)[0];
    assert_eq!((&*most.key, most.kind, most.remaining), ("255.255.255.255", OffenderKind::Address, 0.003));
    assert!((100..=107).contains(&(most.asked / SAMPLED)) && most.stands_out(), "{most:?}");
}

#[test]
fn threads_that_refuse_at_once_lose_no_refusal() {
    let offenders = Arc::new(Offenders::new());
    let threads = (0..4_u8).map(|thread| {
        let offenders = Arc::clone(&offenders);
        std::thread::spawn(move || {
            for round in 0..2_000_u32 {
                refuse(&offenders, Ipv4Addr::new(10, 0, 0, thread), 0);
                refuse(&offenders, Ipv4Addr::from(round), 0);
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let mut exact: HashMap<_, _> = (0..2_000).map(|round| (Ipv4Addr::from(round), 4)).collect();
    exact.extend((0..4).map(|thread| (Ipv4Addr::new(10, 0, 0, thread), 2_000)));
    assert_right(&offenders, &exact, 0, 0);
}

/// A thread that finds the list locked does not wait, until it has kept as many refusals as it may.
#[test]
fn a_refusal_that_comes_while_the_list_is_locked_is_counted_in_the_minutes_when_it_came() {
    let offenders = Offenders::new();
    let early = Ipv4Addr::new(10, 0, 0, 1);
    let keep = |count: u32, now_us, read_us| {
        let held = offenders.refused.counted(read_us);
        let refuses = || (0..count).for_each(|_| refuse(&offenders, early, now_us));
        std::thread::scope(|scope| scope.spawn(refuses).join().unwrap());
        drop(held);
    };
    let listed = |now_us| {
        let listed = offenders.most_refused(now_us);
        listed.iter().map(|of| (of.key.clone(), of.rejected)).collect::<Vec<_>>()
    };
    keep(3, 0, 0);
    refuse(&offenders, Ipv4Addr::LOCALHOST, TURN_US);
    let of_both = vec![("10.0.0.1".to_owned(), 3), ("127.0.0.1".to_owned(), 1)];
    assert_eq!(listed(TURN_US), of_both, "they came in the minutes before");
    keep(16, 2 * TURN_US, 2 * TURN_US);
    assert_eq!(listed(2 * TURN_US)[0], ("10.0.0.1".to_owned(), 16));
    keep(2, 3 * TURN_US, 3 * TURN_US - 1);
    assert_eq!(
        listed(3 * TURN_US - 1)[0],
        ("10.0.0.1".to_owned(), 18),
        "its second ends in the next minutes"
    );
    let wait = Some(Duration::from_secs(3_600));
    keep(1, 3 * TURN_US, 3 * TURN_US);
    early.with_key(|key| offenders.refused(key, wait, true, 3 * TURN_US + 1));
    assert!(offenders.most_refused(3 * TURN_US + 1)[0].suspended_until.is_some(), "the later one is shown");
    keep(5, 3 * TURN_US, 3 * TURN_US);
    assert_eq!(listed(9 * TURN_US), [], "those that are told too late are forgotten");
    refuse(&offenders, Ipv4Addr::LOCALHOST, 9 * TURN_US);
    assert_eq!(listed(9 * TURN_US), [("127.0.0.1".to_owned(), 1)]);
}

#[test]
fn a_policy_takes_at_most_16_kib() {
    let offenders = Offenders::new();
    let all = size_of::<Offenders>() + offenders.refused.bytes() + lock(&offenders.asking).bytes();
    assert!(all <= 16 * 1024, "{all} bytes");
    assert!(Sketch::new(64).iter().next().is_none(), "and nothing before a key comes");
}
