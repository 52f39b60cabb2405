//! What is decided without a call.

use std::time::Duration;

use sluicegate_core::limiter::check_all;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Key, Policy};
use sluicegate_fleet::Sharded;
use sluicegate_fleet::leased::{Batch, Leased, LeasedBuilder};
use sluicegate_tests::memory::answer;

use super::{MS, Scene, lease, spend};

#[test]
fn a_key_that_spends_often_is_decided_here() {
    let scene = Scene::new();
    for (algorithm, policy) in [
        ("gcra", Policy::gcra("gcra", "10000/min")),
        ("fixed-window", Policy::fixed_window("fixed-window", "10000/min")),
        ("sliding-counter", Policy::sliding_counter("sliding-counter", "10000/min")),
        ("token-bucket", Policy::token_bucket("token-bucket", "10000/min")),
    ] {
        let limiter = scene.limiter(policy);
        let mut local = 0;
        for _ in 0..1_000 {
            local += spend(&limiter, "ada", 1);
            scene.clock.advance(10 * MS);
        }
        assert!(local > 950, "{algorithm}: {local} of 1000");
    }
}

#[test]
fn a_key_that_comes_now_and_then_is_not_leased() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    for _ in 0..10 {
        assert_eq!(spend(&limiter, "ada", 1), 0);
        scene.clock.advance(Duration::from_secs(3));
    }
    for key in 0..100 {
        assert_eq!(spend(&limiter, &format!("stranger-{key}"), 1), 0);
    }
    assert_eq!(scene.store.status().granted, 0);
}

#[test]
fn what_is_held_is_what_surely_remains() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::fixed_window("api", "1000/h"));
    lease(&limiter, "ada");
    let mut held = scene.store.status().held;
    assert!(held > 5, "{held}");
    while held > 4 {
        let decision = answer(limiter.check("ada"));
        let now = scene.store.status().held;
        assert_eq!((decision.decided_by(), decision.remaining()), (DecidedBy::Lease, held - 1));
        assert!(now >= held - 1, "a refill comes before they are gone");
        if now != held - 1 {
            break;
        }
        held = now;
    }
}

#[tokio::test]
async fn the_next_lease_is_asked_for_before_the_last_is_gone() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::fixed_window("api", "100000/h"));
    spend(&limiter, "ada", 2);
    lease(&limiter, "ada");
    let before = scene.calls();
    // All of them are decided here, and some of them have asked for more.
    assert_eq!(spend(&limiter, "ada", 1_000), 1_000);
    assert!(scene.calls() > before);
}

#[test]
fn the_batch_follows_the_rate_of_the_key_and_is_one_unit_near_the_limit() {
    let most_held = |per_second: u32, spent_before: u64| {
        let scene = Scene::new();
        let limiter = scene.limiter(Policy::fixed_window("api", "1000/h"));
        let other = Policy::fixed_window("api", "1000/h").on(scene.another()).unwrap();
        assert!(spent_before == 0 || answer(other.check("ada").cost(spent_before)).is_allowed());
        let mut most = 0;
        for _ in 0..per_second * 5 {
            drop(answer(limiter.check("ada")));
            scene.clock.advance(Duration::from_secs(1) / per_second);
            most = most.max(scene.store.status().held);
        }
        most
    };
    let (slow, fast, near) = (most_held(4, 0), most_held(40, 0), most_held(40, 994));
    assert!(slow < fast, "{slow} < {fast}");
    assert!(fast <= 200, "a fifth of what is left: {fast}");
    assert_eq!(near, 1);
}

#[test]
fn each_cost_of_a_quota_and_each_quota_is_held_for_itself() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "100000/h").and("1000/s"));
    for _ in 0..50 {
        drop(answer(limiter.check("ada").cost(3)));
        scene.clock.advance(10 * MS);
    }
    let status = scene.store.status();
    assert!(status.local > 20, "{status:?}");
    // A second later all units of the tighter one have drained, and those of the other one alone are of no use.
    scene.clock.advance(Duration::from_secs(2));
    assert_eq!(scene.store.status().held, 0);
}

#[test]
fn a_request_with_several_limits_is_decided_here_if_all_of_them_are_held() {
    let scene = Scene::new();
    let (user, route) = (
        scene.limiter(Policy::gcra("user", "10000/min")),
        scene.limiter(Policy::sliding_counter("route", "10000/min")),
    );
    let [ada, grace, search] = ["ada", "grace", "/search"].map(Key::from);
    let both = || answer(check_all([user.check(&ada), route.check(&search).cost(2)]));
    let mut local = 0;
    for _ in 0..200 {
        let decision = both();
        assert!(decision.is_allowed());
        local += u64::from(decision.decided_by() == DecidedBy::Lease);
        scene.clock.advance(10 * MS);
    }
    assert!(local > 150, "{local}");
    assert_eq!(scene.store.status().local, local, "a request counts once");
    // The user is not held, so that the store decides all of it.
    let other = answer(check_all([user.check(&grace), route.check(&search).cost(2)]));
    assert_eq!((other.decided_by(), other.quotas().len()), (DecidedBy::Store, 2));
}

#[test]
fn a_limit_that_refuses_costs_the_others_nothing_that_is_held() {
    let scene = Scene::new();
    let (wide, narrow) =
        (scene.limiter(Policy::gcra("wide", "10000/min")), scene.limiter(Policy::gcra("narrow", "1/min")));
    lease(&wide, "ada");
    assert!(answer(narrow.check("ada")).is_allowed());
    let held = scene.store.status().held;
    let ada = Key::from("ada");
    let refused = answer(check_all([wide.check(&ada), narrow.check(&ada)]));
    assert!(!refused.is_allowed());
    assert_eq!(scene.store.status().held, held);
}

#[test]
fn keys_beyond_the_room_are_decided_by_the_store() {
    let scene = Scene::with(|builder: LeasedBuilder| builder.keys(8));
    let limiter = scene.limiter(Policy::fixed_window("api", "1000/h"));
    for key in 0..8 {
        lease(&limiter, &format!("user-{key}"));
    }
    assert_eq!(scene.store.status().keys, 8);
    for key in 8..100 {
        assert_eq!(spend(&limiter, &format!("user-{key}"), 20), 0, "there is no room");
    }
    assert_eq!(scene.store.status().keys, 8, "whoever holds units stays");
    scene.clock.advance(Duration::from_secs(3_600));
    lease(&limiter, "user-9");
    assert_eq!(scene.store.status().keys, 1, "what has ended has made room");
}

/// Once units were held that are too few for one request, and the store had too few left because of them.
#[test]
fn no_lease_is_smaller_than_the_cost_of_a_request() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "100/min"));
    for _ in 0..3 {
        let decision = answer(limiter.check("ada").cost(30));
        assert!(decision.is_allowed(), "{decision:?}");
        scene.clock.advance(Duration::from_secs(1));
    }
    let wide = scene.limiter(Policy::gcra("wide", "1000/min"));
    let local = |_: &u64| answer(wide.check("ada").cost(30)).decided_by() == DecidedBy::Lease;
    assert!((0..30).filter(local).count() > 5);
    assert_eq!(scene.store.status().held % 30, 0, "{:?}", scene.store.status());
}

/// Once the window that the store told of seemed to end earlier each time, as if the key had been reset.
#[test]
fn a_clock_that_is_a_thousandth_slower_loses_nothing_that_is_held() {
    let scene = Scene::new();
    let store = Leased::builder(&scene.memory).clock(super::Slow(scene.clock.clone())).build().unwrap();
    let limiter = Policy::fixed_window("api", "100000/h").on(&store).unwrap();
    let before = spend(&limiter, "ada", 1);
    for _ in 0..1_000 {
        spend(&limiter, "ada", 1);
        scene.clock.advance(10 * MS);
    }
    let status = store.status();
    assert!(before == 0 && status.local > 900, "{status:?}");
    assert_eq!(status.lost, 0, "{status:?}");
}

#[test]
fn settings_that_cannot_work_are_named() {
    let build = |builder: LeasedBuilder| builder.build().unwrap_err().to_string();
    let builder = || Leased::builder(sluicegate_core::MemoryStore::new());
    for (builder, named) in [
        (builder().keys(0), "0 keys"),
        (builder().batch(Batch::new().share(0)), "0 percent"),
        (builder().batch(Batch::new().share(101)), "101 percent"),
        (builder().batch(Batch::new().most(0)), "0 units"),
        (builder().batch(Batch::new().ahead(Duration::ZERO)), "0ns"),
        (builder().batch(Batch::new().ahead(Duration::from_secs(3_601))), "3601s"),
    ] {
        let problem = build(builder);
        assert!(problem.contains(named), "{problem}");
    }
}

/// Once such units were counted by the rate of the whole policy, which drains faster than its part.
#[test]
fn units_of_a_part_of_a_divided_policy_end_by_the_rate_of_that_part() {
    let (memory, clock) = sluicegate_tests::memory::store();
    let sharded = Sharded::builder(&memory, 4).policy("api").build().unwrap();
    let store = Leased::builder(&sharded).clock(clock.clone()).build().unwrap();
    let limiter = Policy::gcra("api", "1000/s").on(&store).unwrap();
    let (mut passed, mut local) = (Vec::new(), 0);
    for _ in 0..4_000 {
        let decision = answer(limiter.check("ada"));
        if decision.is_allowed() {
            passed.push(clock_us(&clock));
            local += u64::from(decision.decided_by() == DecidedBy::Lease);
        }
        clock.advance(MS / 2);
    }
    for (first, begin_us) in passed.iter().enumerate() {
        let most = |end_us: &u64| 1_000 + usize::try_from((end_us - begin_us) / 1_000).unwrap();
        let is_kept = |(count, end_us): (usize, &u64)| count < most(end_us);
        assert!(passed[first..].iter().enumerate().all(is_kept));
    }
    assert!(local > 0, "nothing was leased of {}", passed.len());
}

fn clock_us(clock: &sluicegate_core::clock::ManualClock) -> u64 {
    sluicegate_core::clock::Clock::now_us(clock)
}
