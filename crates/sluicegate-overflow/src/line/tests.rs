//! What a line promises, played on virtual time.

use crate::line::sale::{SECOND, Visitor, play, random, settings};

/// A crowd that comes within a second, of which a part leaves at once.
fn crowd(count: u64, whole_seconds: bool, leaves: impl Fn(u64) -> bool) -> Vec<Visitor> {
    let visitor = |number| Visitor {
        came_us: SECOND + number * SECOND / count,
        leaves_after: leaves(number).then_some(1),
        whole_seconds,
        ..Visitor::default()
    };
    (0..count).map(visitor).collect()
}

fn entered(visitors: &[Visitor]) -> Vec<u64> {
    let mut all: Vec<u64> = visitors.iter().filter_map(|visitor| visitor.entered_us).collect();
    all.sort_unstable();
    all
}

/// By how much somebody entered before a visitor that had come earlier, at worst.
fn overtaken_by_us(visitors: &[Visitor]) -> u64 {
    let mut latest_us = 0;
    let mut worst_us = 0;
    for entered_us in visitors.iter().filter_map(|visitor| visitor.entered_us) {
        worst_us = worst_us.max(latest_us - entered_us.min(latest_us));
        latest_us = latest_us.max(entered_us);
    }
    worst_us
}

#[test]
fn a_crowd_enters_at_the_rate_in_its_order_and_asks_seldom() {
    for (whole_seconds, part) in [(false, 0), (true, 0), (false, 5), (true, 5), (true, 2)] {
        let mut visitors =
            crowd(10_000, whole_seconds, |number| part > 0 && random(number).is_multiple_of(part));
        let course = play(settings("1000/s"), &mut visitors);
        let all = entered(&visitors);
        let stayed = visitors.iter().filter(|visitor| visitor.leaves_after.is_none()).count();
        let all_who_enter_at_once =
            visitors.iter().filter(|v| v.leaves_after.is_some() && v.entered_us.is_some()).count();
        assert_eq!(all.len(), stayed + all_who_enter_at_once);
        let took_us = all[all.len() - 1] - all[0];
        let ideal_us = (all.len() as u64 - 1) * SECOND / 1_000;
        let polls: Vec<u64> =
            visitors.iter().flat_map(|v| v.polls.iter().skip(1)).map(|us| us / SECOND).collect();
        let busiest = (0..40).map(|second| polls.iter().filter(|at| **at == second).count()).max().unwrap();
        let most_polls = visitors
            .iter()
            .map(|visitor| {
                let wait = visitor.entered_us.unwrap_or(0).saturating_sub(visitor.came_us) as f64 / 1e6;
                visitor.polls.len() as f64 - 2.0 - wait.max(1.0).log2()
            })
            .fold(f64::MIN, f64::max);
        let off = |skip: usize| {
            let mut off: Vec<f64> = visitors
                .iter()
                .filter_map(|v| {
                    let real = v.entered_us?.checked_sub(*v.polls.get(skip)?)? as f64;
                    let told = *v.estimates.get(skip)? as f64 - *v.polls.get(skip)? as f64;
                    Some((told - real).abs() / real.max(1e6))
                })
                .collect();
            off.sort_by(f64::total_cmp);
            off.get(off.len() * 9 / 10).copied().unwrap_or(0.0)
        };
        println!(
            "whole {whole_seconds} part {part}: {} entered, {:.3} of the ideal time, overtaken {} ms, busiest {busiest}, most polls above {most_polls:.2}, estimate off {:.3} {:.3} share {}",
            all.len(),
            took_us as f64 / ideal_us as f64,
            overtaken_by_us(&visitors) / 1000,
            off(0),
            off(1),
            course.share_now()
        );
    }
}
