//! A slow model of a replay: its own reading of lines, its own order, its own algorithms over lists and fractions.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::IpAddr;

use flate2::read::GzDecoder;
use sluicegate_replay::WithinSecond;

use crate::support::ACCESS_LOG;

const SECOND: u64 = 1_000_000;

/// The requests of the real log: address and time in microseconds, in their order.
pub(crate) fn requests(within: WithinSecond) -> Vec<(IpAddr, u64)> {
    let mut text = String::new();
    GzDecoder::new(ACCESS_LOG).read_to_string(&mut text).expect("it is text");
    let mut requests: Vec<(u64, IpAddr)> = Vec::new();
    for line in text.lines() {
        let address = line.split(' ').next().and_then(|text| text.parse().ok()).expect("an address");
        let stamp = &line[line.find('[').expect("a time") + 1..];
        // 17/May/2015:10:05:03 +0000: all of the log is in May and in UTC.
        assert_eq!((&stamp[2..12], &stamp[20..26]), ("/May/2015:", " +0000"));
        let part = |from: usize| stamp[from..from + 2].parse::<u64>().expect("two digits");
        // 1 May 2015 began 16,556 days after the epoch.
        let day = 16_556 + part(0) - 1;
        let second = ((day * 24 + part(12)) * 60 + part(15)) * 60 + part(18);
        requests.push((second, address));
    }
    requests.sort_by_key(|(second, _)| *second);
    let mut timed = Vec::new();
    for second in requests.chunk_by(|one, next| one.0 == next.0) {
        for (place, (at, address)) in second.iter().enumerate() {
            let part = match within {
                WithinSecond::Spread => place as u64 * SECOND / second.len() as u64,
                _ => 0,
            };
            timed.push((*address, at * SECOND + part));
        }
    }
    timed
}

/// What is rejected under an algorithm, per request.
pub(crate) fn rejected(
    requests: &[(IpAddr, u64)],
    algorithm: &str,
    (limit, period, burst): (u64, u64, u64),
    cost: impl Fn(usize) -> u64,
) -> Vec<bool> {
    let mut past: HashMap<IpAddr, Vec<(u64, u64)>> = HashMap::new();
    let decide = |place: usize| {
        let (address, now) = requests[place];
        let admitted = past.entry(address).or_default();
        let fits = fits(algorithm, admitted, now, cost(place), (limit, period, burst));
        if fits {
            admitted.push((now, cost(place)));
        }
        !fits
    };
    (0..requests.len()).map(decide).collect()
}

/// Whether a cost passes, by all that was admitted of the key before.
fn fits(
    algorithm: &str,
    admitted: &[(u64, u64)],
    now: u64,
    cost: u64,
    (limit, period, burst): (u64, u64, u64),
) -> bool {
    let spent = |from: u64, to: u64| -> u64 {
        admitted.iter().filter(|(at, _)| *at >= from && *at < to).map(|(_, cost)| cost).sum()
    };
    let window = now / period * period;
    match algorithm {
        "fixed-window" => spent(window, u64::MAX) + cost <= limit,
        "fixed-window-from-first-hit" => {
            let (mut began, mut count) = (None, 0);
            for (at, cost) in admitted {
                if began.is_none_or(|began| *at >= began + period) {
                    (began, count) = (Some(*at), 0);
                }
                count += cost;
            }
            if began.is_none_or(|began| now >= began + period) {
                cost <= limit
            } else {
                count + cost <= limit
            }
        }
        "sliding-log" => spent((now + 1).saturating_sub(period), u64::MAX) + cost <= limit,
        "sliding-counter" => {
            let before = spent(window - period, window);
            before * (period - (now - window)) / period + spent(window, u64::MAX) + cost <= limit
        }
        "token-bucket-interval" | "token-bucket-aligned" => {
            let (mut tokens, mut border) = (burst, 0);
            let draw = |tokens: &mut u64, border: &mut u64, at: u64, cost: u64| {
                while *tokens < burst && at >= *border {
                    *tokens = (*tokens + limit).min(burst);
                    *border += period;
                }
                if *tokens == burst {
                    *border = if algorithm.ends_with("interval") {
                        at + period
                    } else {
                        at / period * period + period
                    };
                }
                let has = *tokens >= cost;
                *tokens -= if has { cost } else { 0 };
                has
            };
            admitted.iter().for_each(|(at, cost)| _ = draw(&mut tokens, &mut border, *at, *cost));
            draw(&mut tokens, &mut border, now, cost)
        }
        // All that leak continuously; units of 1/limit microseconds.
        _ => {
            let mut arrival: u128 = 0;
            let scaled = |at: u64| u128::from(at) * u128::from(limit);
            for (at, cost) in admitted {
                arrival = arrival.max(scaled(*at)) + u128::from(*cost) * u128::from(period);
            }
            arrival.max(scaled(now)) + u128::from(cost) * u128::from(period) - scaled(now)
                <= u128::from(burst) * u128::from(period)
        }
    }
}
