//! Disturbances of a line, played on virtual time: outages, clocks that step, and operators.

use std::time::Duration;

use sluicegate_core::Quota;

use crate::line::sale::{
    SECOND, SaleEvents, SaleVisitor, crowd, entered, overtaken_by_us, play_with, random, settings,
};
use crate::line::schedule::Schedule;
use crate::line::tests::polls_for;
use crate::line::{LineAnswer, LineAsk, LineChange, LinePlace, LineSettings, LineStanding};

const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The worst time by which visitors that entered from then on overtook one another.
fn overtaken_from_us(visitors: &[SaleVisitor], from_us: u64) -> u64 {
    let entered_later =
        |visitor: &&SaleVisitor| visitor.entered_us.is_some_and(|entered_us| entered_us >= from_us);
    overtaken_by_us(&visitors.iter().filter(entered_later).cloned().collect::<Vec<_>>())
}

fn most_polls(visitors: &[SaleVisitor]) -> usize {
    visitors.iter().map(|visitor| visitor.polls.len()).max().unwrap_or_default()
}

/// A second, as in a line without disturbances; if some leave, the gate is faster for a while, so one more second is allowed.
fn bound_us(some_leave: bool) -> u64 {
    if some_leave { 2 * SECOND } else { SECOND }
}

#[test]
fn after_an_outage_visitors_enter_in_the_order_in_which_they_came() {
    for (long_us, seed) in
        [3, 20, 300, 2_400].into_iter().flat_map(|long| (0..4).map(move |seed| (long * SECOND, seed)))
    {
        // In the first run no visitor leaves, in the others a fifth.
        let some_leave = seed > 0;
        let mut visitors =
            crowd(10_000, true, |number| some_leave && random(number ^ seed << 32).is_multiple_of(5));
        let events = SaleEvents { outage: (10 * SECOND, 10 * SECOND + long_us), ..SaleEvents::default() };
        play_with(settings("100/s"), &mut visitors, &events);
        assert!(
            visitors.iter().all(|visitor| visitor.entered_us.is_some() || visitor.leaves_after.is_some()),
            "nobody is lost"
        );
        // Visitors retry every five seconds; until all are back, the first of those that are back enter.
        let overtaken_us = overtaken_from_us(&visitors, events.outage.1 + 7 * SECOND);
        println!("{long_us} {seed}: overtaken by {overtaken_us}, {} polls", most_polls(&visitors));
        assert!(overtaken_us <= bound_us(some_leave), "{long_us} {seed}: overtaken by {overtaken_us}");
        let all = entered(&visitors);
        let shortest_us = all.windows(2).map(|turns| turns[1] - turns[0]).min().unwrap();
        assert!(shortest_us >= SECOND / 100, "{long_us} {seed}: {shortest_us} between two turns");
        let last_us = all.last().unwrap() - events.outage.1;
        assert!(last_us < 105 * SECOND, "{long_us} {seed}: the last after {last_us}");
        let polls = most_polls(&visitors);
        assert!(polls <= polls_for(100 * SECOND) + 3, "{long_us} {seed}: {polls}");
    }
}

#[test]
fn a_clock_that_steps_keeps_the_order_and_all_places() {
    for by_us in [MINUTE, HOUR, 200 * HOUR, 400_000 * HOUR] {
        for sign in [1, -1] {
            let mut visitors = crowd(10_000, true, |_| false);
            let by = i64::try_from(by_us).unwrap() * sign;
            let events = SaleEvents { clock: (20 * SECOND, by), ..SaleEvents::default() };
            play_with(settings("100/s"), &mut visitors, &events);
            assert_eq!(entered(&visitors).len(), 10_000, "{by}: nobody is lost");
            // Within ten seconds it is known which visitors have missed a turn.
            let overtaken_us = overtaken_from_us(&visitors, 31 * SECOND);
            assert!(overtaken_us <= SECOND, "{by}: {overtaken_us}");
            assert!(most_polls(&visitors) <= polls_for(100 * SECOND) + 3, "{by}: {}", most_polls(&visitors));
        }
    }
}

#[test]
fn a_rate_that_is_raised_and_lowered_again_keeps_the_order_and_the_bounds() {
    for raised_us in [5, 30, 90].map(|seconds| seconds * SECOND) {
        let lowered_us = 10 * SECOND + raised_us;
        let mut visitors = crowd(2_000, true, |_| false);
        let changes = vec![
            (10 * SECOND, LineChange::Rate(Quota::per_second(1_000))),
            (lowered_us, LineChange::Rate(Quota::per_second(5))),
        ];
        play_with(settings("5/s"), &mut visitors, &SaleEvents { changes, ..SaleEvents::default() });
        assert_eq!(entered(&visitors).len(), 2_000, "nobody is lost");
        // Visitors that entered while the rate was raised were ahead of others, so the line is early: sleeping visitors come late for it,
        // by no more than that time.
        let overtaken_us = overtaken_from_us(&visitors, lowered_us + 5 * SECOND);
        assert!(overtaken_us <= raised_us + 5 * SECOND, "{raised_us}: {overtaken_us}");
        // All others enter when they are told to.
        let late_us = |visitor: &SaleVisitor| {
            let told =
                visitor.polls.iter().zip(&visitor.estimates).find(|(poll_us, _)| **poll_us >= lowered_us)?;
            Some(visitor.entered_us?.saturating_sub(*told.1))
        };
        let late_us = visitors.iter().filter_map(late_us).max().unwrap();
        assert!(late_us <= 5 * SECOND, "{raised_us}: {late_us}");
        let polls = most_polls(&visitors);
        println!("{raised_us}: overtaken by {overtaken_us}, late by {late_us}, {polls} polls");
        assert!(polls <= polls_for(400 * SECOND), "{raised_us}: {polls}");
    }
}

/// A line with few passes, polled by hand.
struct Full {
    schedule: Schedule,
    now_us: u64,
}

impl Full {
    fn new(most: u64) -> Self {
        let settings = LineSettings {
            most_active: Some(most),
            pass_lasts: Duration::from_secs(900),
            ..settings("1000/s")
        };
        Self { schedule: Schedule::new(settings, 1).unwrap(), now_us: 1 }
    }

    fn ask(&mut self, place: Option<LinePlace>) -> Result<LinePlace, LineStanding> {
        match self.schedule.ask(self.now_us, LineAsk::new(place, 7)) {
            LineAnswer::Turn(turn) => Ok(turn.place),
            LineAnswer::Waiting(standing) => Err(standing),
            LineAnswer::NoPlace(none) => panic!("{none:?}"),
        }
    }
}

#[test]
fn a_pass_that_ends_early_is_for_those_who_wait_and_not_for_a_newcomer() {
    let mut line = Full::new(5);
    let passes: Vec<LinePlace> = (0..5).map(|_| line.ask(None).unwrap()).collect();
    line.now_us += SECOND;
    let waiting: Vec<LinePlace> = (0..20).map(|_| line.ask(None).unwrap_err().place).collect();
    line.now_us += 2 * SECOND;
    line.schedule.end(line.now_us, passes[0]);
    line.schedule.end(line.now_us, passes[0]);
    for _ in 0..40 {
        line.now_us += SECOND / 2;
        let newcomer = line.ask(None).unwrap_err();
        assert!(newcomer.ask_after >= Duration::from_secs(1), "{newcomer:?}");
    }
    // The last of the waiting visitors is no better off than a newcomer, and the first has it.
    line.ask(Some(waiting[19])).unwrap_err();
    assert_eq!(line.ask(Some(waiting[0])), Ok(waiting[0]));
    assert_eq!(line.schedule.status(line.now_us).active, Some(5));
    line.ask(Some(waiting[1])).unwrap_err();
}

#[test]
fn a_pass_that_nobody_of_those_who_wait_takes_is_used_by_and_by() {
    let mut line = Full::new(2);
    let passes: Vec<LinePlace> = (0..2).map(|_| line.ask(None).unwrap()).collect();
    line.now_us += SECOND;
    let _left = line.ask(None).unwrap_err();
    line.schedule.end(line.now_us, passes[0]);
    let newcomer = line.ask(None).unwrap_err();
    line.now_us += 50 * SECOND;
    line.ask(Some(newcomer.place)).unwrap_err();
    line.now_us += 11 * SECOND;
    assert_eq!(line.ask(Some(newcomer.place)), Ok(newcomer.place));
}
