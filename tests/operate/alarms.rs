//! Alarms as an operator meets them: a service over real sockets under attack, and the real log, which is as usual.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use flate2::read::GzDecoder;
use http::StatusCode;
use sluicegate::RateLimitExt;
use sluicegate::observed::Observed;
use sluicegate::store::{AlarmCause, Event};
use sluicegate::{ClientIp, Limit, Policy};
use sluicegate_core::clock::ManualClock;
use sluicegate_tests::random::Random;

use crate::support::{Client, serve, whole};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// A midnight.
const BEGIN: u64 = 20_000 * 24 * 60 * MINUTE;
const ATTACK: u64 = BEGIN + 22 * MINUTE;

/// A request: its time and its client.
type Request = (u64, Ipv4Addr);

/// The alarms that a store tells.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(AlarmCause, String)>>>);

impl Told {
    fn by(store: &Observed) -> Self {
        let told = Self::default();
        let listener = told.clone();
        store.listen(move |event: &Event<'_>| {
            if let Event::Alarm(alarm) = event {
                listener.0.lock().unwrap().push((alarm.cause, alarm.to_string()));
            }
        });
        told
    }

    fn all(&self) -> Vec<(AlarmCause, String)> {
        self.0.lock().unwrap().clone()
    }
}

/// Forty people for 24 minutes, three requests a minute each.
fn people() -> Vec<Request> {
    let mut random = Random::new(3);
    let people = (0..40).map(|person| Ipv4Addr::new(192, person, 2, 7));
    people.flat_map(|person| [(); 72].map(|()| (BEGIN + random.below(24 * MINUTE), person))).collect()
}

/// One request each ten seconds of each address, from its beginning on.
fn every_ten_seconds(addresses: impl Iterator<Item = Request>) -> Vec<Request> {
    let of = |(from, address)| (0..12).map(move |ask| (from + ask * 10 * SECOND, address));
    addresses.flat_map(of).collect()
}

/// The four attacks, each with its most noticeable sign.
fn attacks() -> [(&'static str, AlarmCause, Vec<Request>); 4] {
    let spread = |index: u32| Ipv4Addr::from(0xCB00_0000 + index * 65_537);
    let at = |index: u32| ATTACK + u64::from(index) * 17 * SECOND / 1_000;
    let thin = (0..500).map(|index| (at(index), spread(index)));
    // From nothing to six hundred requests a minute, in one minute.
    let ramp = (0..100).map(|index| (ATTACK + u64::from(index) * 600_000, spread(index)));
    let network = (0..150).map(|host| (at(host), Ipv4Addr::from(0xC633_6400 + host)));
    // Thirty addresses that do not care for refusals.
    let stuffing = (0..60_u64).flat_map(|burst| {
        (0..30).map(move |index| (ATTACK + burst * 2 * SECOND + u64::from(index), spread(index)))
    });
    [
        ("thin", AlarmCause::NewKeys, every_ten_seconds(thin)),
        ("ramp", AlarmCause::NewKeys, every_ten_seconds(ramp)),
        ("network", AlarmCause::BusiestNetwork, every_ten_seconds(network)),
        ("stuffing", AlarmCause::Refusals, stuffing.collect()),
    ]
}

#[tokio::test]
async fn four_attacks_are_noticed_within_a_minute() {
    for (name, cause, attack) in attacks() {
        let clock = ManualClock::new();
        clock.set(Duration::from_micros(BEGIN));
        let store =
            Observed::named(format!("alarms-{name}"), sluicegate_tests::memory::store_on(clock.clone()));
        let store = store.unwrap();
        let told = Told::by(&store);
        let login = Policy::gcra("login", "10/min").on(&store).unwrap();
        let by_client = Limit::new(login.clone()).key(ClientIp::behind(["127.0.0.1/32"]).unwrap());
        let app = Router::new().route("/login", get(async || "in")).rate_limit(by_client);
        let mut client = Client::connect(serve(app).await).await;

        let is_person = |address: Ipv4Addr| address.octets()[2..] == [2, 7];
        let mut requests = people();
        requests.extend(attack);
        requests.sort_unstable();
        let mut noticed = None;
        for (at, address) in requests {
            clock.set(Duration::from_micros(at));
            let request = http::Request::get("/login").header("x-forwarded-for", address.to_string());
            let status = whole(client.begin_with(request, "").await).await.status();
            assert!(!is_person(address) || status == StatusCode::OK, "{name}: {address} was refused");
            let is_noticed = told.all().iter().any(|(told, _)| *told == cause);
            noticed = noticed.or_else(|| is_noticed.then_some(at));
            if noticed.is_some() {
                break;
            }
        }
        let after = noticed.unwrap_or_else(|| panic!("{name}: {:?}", told.all())).checked_sub(ATTACK);
        assert!(after.is_some_and(|after| after <= MINUTE), "{name}: after {after:?} us");
    }
}

/// The real log: times in microseconds, and clients.
fn real() -> Vec<(u64, IpAddr)> {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("../../crates/sluicegate-replay/tests/access.log.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let request = |line: &str| {
        // 83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET ..
        let (address, rest) = line.split_once(' ')?;
        let time = rest.split_once('[')?.1.get(..20)?;
        let seconds = ((number(&time[..2]) * 24 + number(&time[12..14])) * 60 + number(&time[15..17])) * 60;
        Some(((seconds + number(&time[18..20])) * SECOND, address.parse().ok()?))
    };
    text.lines().filter_map(request).collect()
}

#[test]
fn the_days_of_the_real_log_are_as_usual() {
    let real = real();
    assert!(real.len() > 4_900, "{}", real.len());
    // As it is, with each hour's requests in one minute of it; with these spread over their hours; and forty hours in one.
    let spread = |at: u64| at / (60 * MINUTE) * 60 * MINUTE + at % MINUTE * 60;
    let dense = |at: u64| spread(at) / 40;
    let views: [(&str, &dyn Fn(u64) -> u64); 3] =
        [("bursts", &|at| at), ("spread", &spread), ("dense", &dense)];
    for (name, view) in views {
        let clock = ManualClock::new();
        clock.set(Duration::from_micros(BEGIN));
        let store = sluicegate_tests::memory::store_on(clock.clone());
        let store = Observed::named(format!("alarms-real-{name}"), store).unwrap();
        let told = Told::by(&store);
        let all = Policy::gcra("all", "20/min").on(&store).unwrap();
        let mut requests: Vec<_> = real.iter().map(|(at, address)| (BEGIN + view(*at), *address)).collect();
        requests.sort_unstable();
        for (at, address) in requests {
            clock.set(Duration::from_micros(at));
            assert!(all.check(address).now().is_ok_and(|decision| decision.is_ok()));
        }
        assert_eq!(told.all(), [], "{name}");
    }
}
