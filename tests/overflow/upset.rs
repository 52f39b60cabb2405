//! What upsets a line, in memory and in Redis: both keep the order, by the same answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sluicegate::overflow::WaitingRoom;
use sluicegate::overflow::line::{LineAnswer, LineAsk, LineChange, LinePlace};
use sluicegate_tests::servers::Server;
use sluicegate_tests::time::{START, on_the_hour};

use crate::overflow::lines::lines;

/// What happens to a line, after so many milliseconds.
enum Event {
    /// Nobody reaches it for so long.
    Outage(u64),
    Rate(&'static str),
    /// The first who has entered leaves before its time.
    End,
}

/// Visitors that come within a second ask when they are told to, in both lines at once, or leave. Returns after how many milliseconds each of
/// them has entered; 0 for those that left.
async fn play(
    visitors: u64,
    most: Option<u64>,
    leaves: impl Fn(u64) -> bool,
    events: &[(u64, Event)],
) -> Vec<u64> {
    let (server, clock) = (Server::start(), on_the_hour());
    let room = WaitingRoom::builder("sale", "20/s").pass_lasts(Duration::from_secs(300));
    let all = lines(&server, &clock, if let Some(most) = most { room.most_active(most) } else { room }).await;
    let mut asks: BinaryHeap<_> =
        (0..visitors).map(|visitor| Reverse((visitor * 1_000 / visitors, visitor))).collect();
    let (mut places, mut entered) =
        (vec![None::<LinePlace>; 3_000], vec![0; usize::try_from(visitors).unwrap()]);
    let (mut events, mut silent_until) = (events.iter().peekable(), 0);
    while let Some(Reverse((now, visitor))) = asks.pop() {
        let index = usize::try_from(visitor).unwrap();
        while let Some((at, event)) = events.next_if(|(at, _)| *at <= now) {
            clock.set(START + Duration::from_millis(*at));
            for line in &all[..2] {
                match event {
                    Event::Outage(lasts) => silent_until = at + lasts,
                    Event::Rate(rate) => line.change(LineChange::Rate(rate.parse().unwrap())).await.unwrap(),
                    Event::End => line.end(places[0].unwrap()).await.unwrap(),
                }
            }
        }
        if now < silent_until {
            asks.push(Reverse((now + 5_000, visitor)));
            continue;
        }
        clock.set(START + Duration::from_millis(now));
        let ask = LineAsk::new(places[index], u32::try_from(visitor).unwrap());
        let expected = all[0].ask(ask).await.unwrap();
        let found = all[1 + index % 4].ask(ask).await.unwrap();
        assert_eq!(found, expected, "{visitor} after {now}");
        match found {
            LineAnswer::Turn(turn) => {
                places[index] = Some(turn.place);
                entered[index] = now + u64::try_from(turn.after.as_millis()).unwrap();
            }
            LineAnswer::Waiting(standing) => {
                places[index] = Some(standing.place);
                let after = u64::try_from(standing.ask_after.as_millis()).unwrap();
                if !leaves(visitor) {
                    asks.push(Reverse((now + after, visitor)));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    entered
}

/// By how many milliseconds one of those that entered from then on was overtaken, at worst.
fn overtaken(entered: &[u64], from: u64) -> u64 {
    let mut latest = 0;
    let late = entered.iter().filter(|at| **at >= from).map(|at| {
        latest = latest.max(*at);
        latest - at
    });
    late.max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_both_lines_keep_the_order() {
    let entered = play(400, None, |_| false, &[(3_000, Event::Outage(12_000))]).await;
    println!("overtaken by {} ms", overtaken(&entered, 22_000));
    assert!(overtaken(&entered, 22_000) <= 1_500, "{entered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rate_was_raised_and_lowered_both_lines_keep_the_order() {
    let events = [(4_000, Event::Rate("1000/s")), (9_000, Event::Rate("10/s"))];
    let entered = play(600, None, |_| false, &events).await;
    println!("overtaken by {} ms", overtaken(&entered, 20_000));
    assert!(overtaken(&entered, 20_000) <= 10_000, "{entered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_ends_early_is_for_the_first_who_waits_in_both_lines() {
    // The first twenty are inside; the others come too late for a pass.
    let entered = play(60, Some(20), |_| false, &[(10_000, Event::End)]).await;
    let next = entered.iter().position(|at| *at > 10_000).unwrap();
    assert_eq!(next, 20, "{entered:?}");
    // It has asked after two thirds of its wait.
    assert!(entered[20] < 201_000, "{entered:?}");
    assert!(*entered.iter().max().unwrap() < 603_000, "the passes that end are used: {entered:?}");
    assert!(entered[21..].iter().all(|at| *at > entered[20]), "{entered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_fifths_away_both_lines_take_two_thirds_of_the_time_for_all() {
    let entered = play(600, None, |visitor| visitor % 5 < 2, &[]).await;
    let came: Vec<u64> = entered.into_iter().filter(|at| *at > 0).collect();
    println!("{} entered, the last after {} ms", came.len(), came.iter().max().unwrap());
    assert!(overtaken(&came, 0) <= 1_000, "{came:?}");
    assert!(*came.iter().max().unwrap() <= 22_000, "{came:?}");
}

/// Some of those that leave enter at once, and hold the first passes; later, free passes call twice as many each minute.
#[tokio::test(flavor = "multi_thread")]
async fn with_nineteen_of_twenty_away_free_passes_call_the_others_in_both_lines() {
    let entered = play(2_400, Some(100), |visitor| visitor % 20 > 0, &[]).await;
    let came: Vec<u64> = entered.into_iter().step_by(20).collect();
    println!("the last after {} ms", came.iter().max().unwrap());
    assert!(came[1..].iter().all(|at| (1..1_200_000).contains(at)), "{came:?}");
}
