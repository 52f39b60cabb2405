//! Alarms: attacks that no single key shows, and traffic that is as usual.

#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

use std::collections::BTreeSet;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, UNIX_EPOCH};

use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::{Inherit, Overrides};
use sluicegate_core::policy::{Override, PolicyBuilder};
use sluicegate_core::store::{Alarm, AlarmCause, Event};
use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter};
use sluicegate_observed::Observed;
use sluicegate_tests::random::Random;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// A midnight.
const BEGIN: u64 = 20_000 * 24 * HOUR;

/// A service with a limit per address, and everything that its store told.
struct Scene {
    store: Observed,
    limiter: RateLimiter,
    clock: ManualClock,
    random: Random,
    told: Arc<Mutex<Vec<(u64, Alarm)>>>,
}

/// A request: its time and its client.
type Request = (u64, Ipv4Addr);
/// The requests of an attack that begins at this time.
type Attack<'a> = &'a dyn Fn(u64) -> Vec<Request>;

impl Scene {
    fn new(name: &str) -> Self {
        let clock = ManualClock::new();
        clock.set(Duration::from_micros(BEGIN));
        let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let store = Observed::named(name, memory).unwrap();
        let limiter = Policy::gcra("login", "10/min").on(&store).unwrap();
        let told = Arc::<Mutex<Vec<(u64, Alarm)>>>::default();
        let (listener, at) = (Arc::clone(&told), clock.clone());
        store.listen(move |event: &Event<'_>| {
            if let Event::Alarm(alarm) = event {
                listener.lock().unwrap().push((sluicegate_core::clock::Clock::now_us(&at), (*alarm).clone()));
            }
        });
        Self { store, limiter, clock, random: Random::new(7), told }
    }

    /// Serves these requests in the order of their times.
    fn serve(&self, mut requests: Vec<Request>) -> Vec<(Request, bool)> {
        requests.sort_unstable();
        let serve = |request: Request| {
            self.clock.set(Duration::from_micros(request.0));
            let decision = self.limiter.check(request.1).now().unwrap().unwrap();
            (request, decision.is_allowed())
        };
        requests.into_iter().map(serve).collect()
    }

    /// What people ask for from one time to another: some hundred regulars and a few newcomers, at midday five times as many as at midnight.
    fn people(&mut self, from: u64, to: u64) -> Vec<Request> {
        let mut requests = Vec::new();
        for minute in steps(from, to, MINUTE) {
            let hour = minute / HOUR % 24;
            let busy = 1 + 4 * (12 - hour.abs_diff(12)) / 12;
            for _ in 0..8 * busy {
                let person = self.random.below(300);
                let is_new = self.random.below(10) == 0;
                let person = if is_new { self.random.below(1 << 20) + 4_096 } else { person };
                let begin = minute + self.random.below(MINUTE);
                let asks = 1 + self.random.below(4);
                let address = Ipv4Addr::from(0x0A00_0000 + u32::try_from(person * 97).unwrap());
                requests.extend((0..asks).map(|ask| (begin + ask * 3 * SECOND, address)));
            }
        }
        requests.retain(|(at, _)| *at < to);
        requests
    }

    fn told(&self) -> Vec<(u64, Alarm)> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    /// The alarms that begin with the attack, which begins at three at night, after some hours of people; and the requests of people that
    /// were refused.
    fn attacked(&mut self, attack: impl Fn(u64) -> Vec<Request>) -> Vec<(u64, Alarm)> {
        let (begin, end) = (BEGIN + 3 * HOUR, BEGIN + 3 * HOUR + 20 * MINUTE);
        let before = self.people(BEGIN, begin);
        self.serve(before);
        assert_eq!(self.told(), [], "nothing is unusual before");
        let mut requests = self.people(begin, end);
        requests.extend(attack(begin));
        self.serve(requests);
        self.told()
    }
}

/// The times from one to another, that far apart.
fn steps(from: u64, to: u64, apart: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |step| from + step * apart).take_while(move |at| *at < to)
}

/// The requests of these addresses, each one every `every`, for twenty minutes.
fn each(addresses: impl Iterator<Item = Ipv4Addr>, begin: u64, every: u64) -> Vec<Request> {
    let begins =
        addresses.enumerate().map(|(index, address)| (begin + index as u64 * 97_003 % every, address));
    begins
        .flat_map(|(first, address)| steps(first, begin + 20 * MINUTE, every).map(move |at| (at, address)))
        .collect()
}

fn spread() -> impl Iterator<Item = Ipv4Addr> {
    (0..500_u32).map(|index| Ipv4Addr::from(0xCB00_0000 + index * 65_537))
}

#[track_caller]
fn noticed(told: &[(u64, Alarm)], cause: AlarmCause, begin: u64) -> &Alarm {
    let (at, alarm) =
        told.iter().find(|(_, alarm)| alarm.cause == cause).unwrap_or_else(|| panic!("{told:#?}"));
    assert!(*at <= begin + MINUTE, "after {} s", (at - begin) / SECOND);
    let again: Vec<_> =
        told.iter().filter(|(_, alarm)| alarm.cause == cause && !alarm.is_over).map(|(at, _)| at).collect();
    assert!(again.windows(2).all(|two| two[1] - two[0] >= 10 * MINUTE), "{again:?}");
    alarm
}

#[test]
fn an_attack_that_is_spread_thin_is_noticed_although_no_key_is_refused() {
    let mut scene = Scene::new("alarm-spread");
    let told = scene.attacked(|begin| each(spread(), begin, 10 * SECOND));
    let alarm = noticed(&told, AlarmCause::NewKeys, BEGIN + 3 * HOUR);
    assert!((400..=700).contains(&alarm.a_minute) && alarm.usual.1 < 60 && alarm.share > 0.8, "{alarm:?}");
    let text = alarm.to_string();
    assert!(text.starts_with("new keys of login a minute: "), "{text}");
}

#[test]
fn people_alone_are_as_usual_for_a_day_and_a_night() {
    let mut scene = Scene::new("alarm-people");
    let people = scene.people(BEGIN, BEGIN + 26 * HOUR);
    scene.serve(people);
    assert_eq!(scene.told(), []);
}

fn network() -> impl Iterator<Item = Ipv4Addr> {
    (0..200_u32).map(|host| Ipv4Addr::from(0xC633_6400 + host))
}

#[test]
fn one_network_is_noticed_and_named() {
    let mut scene = Scene::new("alarm-network");
    let told = scene.attacked(|begin| each(network(), begin, 10 * SECOND));
    let alarm = noticed(&told, AlarmCause::BusiestNetwork, BEGIN + 3 * HOUR);
    assert!(alarm.networks[0].0 == "198.51.100.0/24" && alarm.share > 0.8, "{alarm:?}");
}

fn ramp(begin: u64) -> Vec<Request> {
    let joins = spread().enumerate().map(|(index, address)| (begin + 2 * SECOND * index as u64, address));
    joins.flat_map(|(join, address)| each([address].into_iter(), join, 10 * SECOND)).collect()
}

#[test]
fn a_slow_ramp_is_noticed_once_it_makes_more_than_is_usual() {
    let mut scene = Scene::new("alarm-ramp");
    // Fifty addresses make three hundred requests a minute.
    let noticeable = BEGIN + 3 * HOUR + 100 * SECOND;
    noticed(&scene.attacked(ramp), AlarmCause::Requests, noticeable);
}

#[test]
fn stuffing_of_credentials_by_rejected_addresses_is_noticed_by_its_refusals() {
    let mut scene = Scene::new("alarm-stuffing");
    let told = scene.attacked(|begin| each(spread().take(30), begin, 2 * SECOND));
    noticed(&told, AlarmCause::Refusals, BEGIN + 3 * HOUR);
}

#[test]
fn an_attack_does_not_become_usual_and_its_end_is_told() {
    let mut scene = Scene::new("alarm-long");
    let (begin, end) = (BEGIN + 3 * HOUR, BEGIN + 6 * HOUR);
    let mut requests = scene.people(BEGIN, end);
    // Two hours, in parts of twenty minutes.
    requests.extend((0..6).flat_map(|part| each(spread(), begin + part * 20 * MINUTE, 10 * SECOND)));
    scene.serve(requests);
    let told = scene.told();
    let of: Vec<_> = told.iter().filter(|(_, alarm)| alarm.cause == AlarmCause::Requests).collect();
    let [(_, begins), (ends, over)] = &of[..] else { panic!("{of:#?}") };
    assert!(
        !begins.is_over
            && over.is_over
            && over.to_string().starts_with("no longer unusual: requests of login")
    );
    let stopped = begin + 120 * MINUTE;
    assert!((stopped..stopped + 8 * MINUTE).contains(ends), "{} s after", (ends - stopped) / SECOND);
    assert_eq!(scene.store.snapshot().policies[0].alarms, []);
}

#[test]
fn what_comes_each_day_at_its_hour_is_as_usual() {
    let mut scene = Scene::new("alarm-daily");
    let job = Ipv4Addr::new(192, 0, 2, 7);
    let days = 3;
    let mut requests = scene.people(BEGIN, BEGIN + days * 24 * HOUR);
    for day in 0..days {
        let begin = BEGIN + day * 24 * HOUR + 4 * HOUR;
        requests.extend(steps(begin, begin + 45 * MINUTE, 100_000).map(|at| (at, job)));
    }
    scene.serve(requests);
    let told = scene.told();
    let days: Vec<_> = told.iter().map(|(at, _)| (at - BEGIN) / (24 * HOUR)).collect();
    assert!(days.contains(&0) && !days.contains(&2), "{told:#?}");
}

#[test]
fn the_opening_of_a_sale_that_was_announced_is_no_warning() {
    let mut scene = Scene::new("alarm-sale");
    scene.store.expect_unusual("the sale", UNIX_EPOCH + Duration::from_micros(BEGIN + 4 * HOUR));
    let told = scene.attacked(|begin| each(spread(), begin, 15 * SECOND));
    assert!(told.iter().any(|(_, alarm)| alarm.cause == AlarmCause::NewKeys), "{told:?}");
    assert!(told.iter().all(|(_, alarm)| alarm.to_string().starts_with("expected, the sale: ")), "{told:#?}");
    let events = scene.store.snapshot().events;
    assert!(events.iter().all(|event| ["alarm_expected", "alarm_over"].contains(&event.what)), "{events:?}");
}

#[test]
fn a_flood_of_keys_makes_estimates_that_tell_their_error() {
    let mut scene = Scene::new("alarm-flood");
    let told = scene.attacked(|begin| {
        let flood = (0..100_000_u32).map(|index| Ipv4Addr::from(0xCB00_0000 + index * 257));
        each(flood, begin, 20 * MINUTE)
    });
    let alarm = noticed(&told, AlarmCause::NewKeys, BEGIN + 3 * HOUR);
    let (number, error) = (alarm.a_minute as f64, alarm.error as f64);
    // 5,000 a minute; the alarm comes after twenty to thirty seconds. Beyond five errors is one estimate in a million.
    assert!(error > 0.0 && (number - 5_000.0 / 3.0).abs() < 5.0 * error, "{number} ± {error}");
    let snapshot = scene.store.snapshot().policies.remove(0);
    assert!(snapshot.alarms.iter().any(|alarm| alarm.to_string().contains("(± ")), "{snapshot:?}");
}

/// Serves people and an attack on a policy that is tightened, and returns how many requests of people and of attackers were refused, and
/// how many of each there were.
fn tightened(name: &str, build: impl Fn(PolicyBuilder) -> PolicyBuilder) -> (Scene, [usize; 4]) {
    let scene = Scene::new(name);
    let limiter = build(Policy::gcra("tight", "10/min")).on(&scene.store).unwrap();
    let mut scene = Scene { limiter, ..scene };
    let (begin, end) = (BEGIN + 3 * HOUR, BEGIN + 3 * HOUR + 20 * MINUTE);
    let mut requests = scene.people(BEGIN, end);
    requests.extend(each(spread(), begin, 10 * SECOND));
    let mut counts = [0; 4];
    for ((_, address), is_allowed) in scene.serve(requests) {
        let place = if address.octets()[0] == 10 { 0 } else { 1 };
        counts[place] += usize::from(!is_allowed);
        counts[place + 2] += 1;
    }
    (scene, counts)
}

#[test]
fn a_policy_is_tightened_while_an_alarm_lasts_and_people_are_unharmed() {
    let (mut scene, [people, attackers, all_people, all_attackers]) =
        tightened("tight", |policy| policy.tighten("3/min burst 10", "30min"));
    assert!(people * 100 <= all_people, "{people} of {all_people} requests of people were refused");
    assert!(attackers * 3 > all_attackers, "only {attackers} of {all_attackers} of attackers were");
    assert_eq!(scene.limiter.policy().to_string(), "tight: 3/min burst 10 (gcra)");
    let [over] = &Overrides::of(&scene.store).list()[..] else { panic!("one stands") };
    assert_eq!(over.by(), "alarm");
    let events = scene.store.snapshot().events;
    assert!(events.iter().any(|event| event.what == "quota_changed" && event.by.as_deref() == Some("alarm")));
    // The attack is over.
    let after = scene.people(BEGIN + 3 * HOUR + 20 * MINUTE, BEGIN + 3 * HOUR + 28 * MINUTE);
    scene.serve(after);
    assert_eq!(scene.limiter.policy().to_string(), "tight: 10/min (gcra)");
}

#[test]
fn it_is_tightened_for_no_longer_than_was_said() {
    let (scene, _) = tightened("tight-short", |policy| policy.tighten("3/min", "5min"));
    assert_eq!(scene.limiter.policy().to_string(), "tight: 10/min (gcra)");
    assert!(!scene.store.snapshot().policies[0].alarms.is_empty(), "the alarm goes on");
}

/// The other quotas of a policy were once gone while it was tightened.
#[test]
fn the_first_quota_is_tightened_and_the_others_stay() {
    let (scene, _) =
        tightened("tight-two", |policy| policy.and("100000/h").tighten("3/min burst 10", "30min"));
    assert_eq!(scene.limiter.policy().to_string(), "tight: 3/min burst 10, 100000/h (gcra)");
}

#[test]
fn in_shadow_nothing_is_tightened() {
    let (scene, [people, attackers, ..]) =
        tightened("tight-shadow", |policy| policy.tighten("3/min", "30min").tighten_in_shadow());
    assert_eq!((people, attackers), (0, 0));
    assert_eq!(Overrides::of(&scene.store).list(), []);
}

/// The keys of a kind, and those of them that were refused.
#[derive(Default)]
struct Keys {
    all: BTreeSet<Ipv4Addr>,
    refused: BTreeSet<Ipv4Addr>,
}

/// Serves people and an attack on a policy that is tightened for new keys: people who came
/// before, those who did not, and the attackers.
fn tightened_for_new(name: &str, quota: &str, attack: Attack<'_>) -> (Scene, [Keys; 3]) {
    let scene = Scene::new(name);
    let limiter = Policy::gcra("tight", "10/min").tighten(quota, "1h").tighten_new_keys().on(&scene.store);
    let mut scene = Scene { limiter: limiter.unwrap(), ..scene };
    let begin = BEGIN + 3 * HOUR;
    let before = scene.people(BEGIN, begin);
    let known: BTreeSet<_> = before.iter().map(|(_, address)| *address).collect();
    scene.serve(before);
    let mut requests = scene.people(begin, begin + 20 * MINUTE);
    requests.extend(attack(begin));
    let mut keys: [Keys; 3] = Default::default();
    for ((_, address), is_allowed) in scene.serve(requests) {
        let place = match address.octets()[0] {
            _ if known.contains(&address) => 0,
            10..=127 => 1,
            _ => 2,
        };
        keys[place].all.insert(address);
        if !is_allowed {
            keys[place].refused.insert(address);
        }
    }
    (scene, keys)
}

#[test]
fn of_four_attacks_new_keys_are_tightened_and_ninety_nine_in_a_hundred_ordinary_ones_are_unharmed() {
    let attacks: [(&str, Attack<'_>); 4] = [
        ("spread", &|begin| each(spread(), begin, 10 * SECOND)),
        ("network", &|begin| each(network(), begin, 10 * SECOND)),
        ("ramp", &ramp),
        ("stuffing", &|begin| each(spread().take(30), begin, 2 * SECOND)),
    ];
    for (name, attack) in attacks {
        let (scene, [regulars, newcomers, attackers]) =
            tightened_for_new(&format!("new-{name}"), "3/min burst 4", attack);
        let (ordinary, harmed) =
            (regulars.all.len() + newcomers.all.len(), regulars.refused.len() + newcomers.refused.len());
        assert!(harmed * 100 <= ordinary, "{name}: {harmed} of {ordinary}");
        assert!(
            attackers.refused.len() * 10 > attackers.all.len() * 9,
            "{name}: {}",
            attackers.refused.len()
        );
        let [over] = &Overrides::of(&scene.store).list()[..] else { panic!("{name}: one stands") };
        assert_eq!(over.to_string(), "tight for new keys: 3/min burst 4, by alarm");
        assert_eq!(scene.limiter.policy().to_string(), "tight: 10/min (gcra)", "{name}");
    }
}

#[test]
fn however_tight_it_is_for_new_keys_regulars_have_what_they_had_and_all_have_it_at_the_end() {
    let (mut scene, [regulars, newcomers, _]) =
        tightened_for_new("new-tight", "1/min burst 1", &|begin| each(spread(), begin, 10 * SECOND));
    let (harmed, all) = (regulars.refused.len(), regulars.all.len());
    assert!(harmed * 100 <= all && all > 150, "{harmed} of {all}");
    assert!(newcomers.refused.len() * 4 > newcomers.all.len(), "it holds for them");
    let stranger = Key::from(Ipv4Addr::new(203, 0, 113, 9));
    let capacity = |scene: &Scene| scene.limiter.peek(&stranger).now().unwrap().unwrap().capacity();
    assert_eq!(capacity(&scene), 1);
    // A reload in the middle changes nothing about it; without `tighten`, it ends with the alarm nevertheless.
    let regular = *regulars.all.first().unwrap();
    for build in [|it: PolicyBuilder| it.tighten("1/min burst 1", "1h").tighten_new_keys(), |it| it] {
        let policy = build(Policy::gcra("tight", "12/min")).build().unwrap();
        scene.limiter.replace(policy, Inherit::Spent).unwrap();
        assert_eq!(capacity(&scene), 1);
        assert_eq!(scene.limiter.peek(regular).now().unwrap().unwrap().capacity(), 12);
    }
    let after = scene.people(BEGIN + 3 * HOUR + 20 * MINUTE, BEGIN + 3 * HOUR + 28 * MINUTE);
    scene.serve(after);
    assert_eq!((capacity(&scene), Overrides::of(&scene.store).list().len()), (12, 0));
    let events = scene.store.snapshot().events;
    let told: Vec<_> = events.iter().filter(|event| event.what.starts_with("key_quota")).collect();
    let [begins, ends] = &told[..] else { panic!("{told:?}") };
    assert_eq!((begins.what, begins.to.as_deref()), ("key_quota_given", Some("1/min")));
    assert!(ends.what == "key_quota_over" && told.iter().all(|it| it.by.as_deref() == Some("alarm")));
}

#[test]
fn in_shadow_new_keys_have_what_all_have() {
    let (scene, [people, attackers, ..]) = tightened("new-shadow", |policy| {
        policy.tighten("1/min", "30min").tighten_new_keys().tighten_in_shadow()
    });
    assert_eq!((people, attackers, Overrides::of(&scene.store).list().len()), (0, 0, 0));
}

#[test]
fn the_override_of_an_operator_stays() {
    let scene = Scene::new("tight-operator");
    let limiter = Policy::gcra("tight", "10/min").tighten("3/min", "30min").on(&scene.store).unwrap();
    let mut scene = Scene { limiter, ..scene };
    let over = Override::builder("tight", "ada").quota("20/min").lasting(Duration::from_secs(86_400));
    // On a store in memory it is there at once.
    let put =
        std::pin::pin!(Overrides::of(&scene.store).put(over)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(put.is_ready());
    let told = scene.attacked(|begin| each(spread(), begin, 10 * SECOND));
    noticed(&told, AlarmCause::NewKeys, BEGIN + 3 * HOUR);
    assert_eq!(scene.limiter.policy().to_string(), "tight: 20/min (gcra)");
}

/// The override of its first alarm once stood on, and none of its alarms tightened it again.
#[test]
fn a_policy_that_was_closed_when_its_alarm_ended_is_loosened_and_tightened_by_the_next_alarm() {
    let tight = |policy: PolicyBuilder| policy.tighten("3/min burst 10", "1d");
    let (Scene { store, limiter, clock, random, told }, _) = tightened("tight-closed", tight);
    drop(limiter);
    let closed = BEGIN + 3 * HOUR + 20 * MINUTE;
    for slot in 0..60 {
        clock.set(Duration::from_micros(closed + slot * 10 * SECOND));
        store.rebind();
    }
    assert!(told.lock().unwrap().last().unwrap().1.is_over);
    assert_eq!(Overrides::of(&store).list().len(), 0, "it is over");
    let limiter = tight(Policy::gcra("tight", "10/min")).on(&store).unwrap();
    let mut scene = Scene { store, limiter, clock, random, told };
    assert_eq!(scene.limiter.policy().to_string(), "tight: 10/min (gcra)");
    let mut requests = scene.people(closed + 10 * MINUTE, closed + 40 * MINUTE);
    requests.extend(each(spread(), closed + 30 * MINUTE, 10 * SECOND));
    requests.retain(|(at, _)| *at < closed + 40 * MINUTE);
    scene.serve(requests);
    assert_eq!(scene.limiter.policy().to_string(), "tight: 3/min burst 10 (gcra)");
}

#[test]
fn what_cannot_tighten_is_named_when_the_policy_is_built() {
    let message = |policy: PolicyBuilder| policy.build().unwrap_err().to_string();
    let login = || Policy::gcra("login", "10/min");
    for (policy, what) in [
        (login().tighten("10/min", "30min"), "10/min is not below 10/min"),
        (login().tighten("600/h", "30min"), "600/h is not below 10/min"),
        (login().tighten("three", "30min"), "\"three\""),
        (login().tighten("3/min", "31d"), "up to 30d"),
        (login().tighten("3/min", "soon"), "\"soon\""),
        (login().tighten("3/min", "30min").tighten_agreed_by(0), "agreed by 0 instances"),
        (login().tighten_agreed_by(0).tighten("3/min", "30min"), "agreed by 0 instances"),
        (login().tighten_agreed_by(3), "use `tighten`"),
        (login().tighten_new_keys(), "use `tighten`"),
        (login().tighten_in_shadow(), "use `tighten`"),
        (Policy::sliding_log("login", "10/min").tighten("3/min burst 9", "30min"), "burst 9"),
    ] {
        let message = message(policy);
        assert!(message.contains("it cannot tighten: ") && message.contains(what), "{message}");
    }
}
