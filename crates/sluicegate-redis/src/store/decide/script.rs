//! The script: one text, so that Redis caches it once.
//!
//! It is assembled from the files in `lua/`. Each algorithm has one file with three parts, which use the names of `lua/head.lua`:
//!
//! | part | purpose |
//! |---|---|
//! | `open` | reads the bucket of a state (`till`, `a`, `b`) at a moment, under the numbers of its rule: the `start` of its window, the units `used` in it, the units of this and the previous window that count (`counted`), and whether later windows have reserved turns (`closed`) |
//! | `close` | makes the state of a bucket from the units in `used` |
//! | `long` | the rest, which the short way does not need |
//!
//! The shortest way is for requests that spend from one bucket, the most usual ones: a call that has only those ends with it.
//! The short way is a flat loop without functions or tables, for values with only the asker's own rules, as almost all values are. It
//! decides a lease alone, or directly after a spend of its bucket. Everything else takes the long way: several rules in a value, turns,
//! refunds, units that are marked, calendars, the same bucket twice, a lease that several quotas cut. All ways consist of the same `open` and
//! `close`. The long way is a function inside the loop of the short one, and costs nothing for calls that do not need it.

use std::sync::LazyLock;

use crate::store::slot::Script;

/// The algorithms in the order of their numbers, which begin at 1: the name in the script, and the file.
const ALGORITHMS: [(&str, &str); 5] = [
    ("gcra", include_str!("lua/gcra.lua")),
    ("window", include_str!("lua/window.lua")),
    ("counter", include_str!("lua/counter.lua")),
    ("log", include_str!("lua/log.lua")),
    ("calendar", include_str!("lua/calendar.lua")),
];

/// The modes in the order of their numbers, which begin at 0, by their names in the script.
const MODE_NAMES: [&str; 9] =
    ["spend", "peek", "reserve", "charge", "refund", "reset", "return", "take", "lease"];

/// The kinds of rules that the script knows.
pub(in crate::store) const KINDS: usize = ALGORITHMS.len();

/// The modes that the script knows, by their numbers: it would refuse the whole call for any other mode.
pub(super) const MODES: usize = MODE_NAMES.len();

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(text()));

fn text() -> String {
    let [open, close] = ["open", "close"].map(|name| of_each(name, &ALGORITHMS));
    // The state of a log, the fourth one, is not a bucket's, and calendars take the long way.
    let [open_bucket, close_bucket] = ["open", "close"].map(|name| of_each(name, &ALGORITHMS[..3]));
    let [open_short, close_short] = ["open", "close"].map(|name| of_each(name, &ALGORITHMS[..4]));
    let long: String = ALGORITHMS.iter().map(|(_, file)| part(file, "long")).collect();
    let rules: String =
        ALGORITHMS.iter().map(|(name, _)| format!("[{}] = {name}, ", name.to_uppercase())).collect();
    let parts = [
        include_str!("lua/head.lua"),
        &numbered(0, &MODE_NAMES),
        &numbered(1, &ALGORITHMS.map(|(name, _)| name)),
        include_str!("lua/single.lua"),
        &open_bucket,
        include_str!("lua/single_spend.lua"),
        &close_bucket,
        include_str!("lua/single_write.lua"),
        include_str!("lua/fast.lua"),
        include_str!("lua/read_state.lua"),
        include_str!("lua/fast_found.lua"),
        &open_short,
        include_str!("lua/fast_judge.lua"),
        &close_short,
        include_str!("lua/fast_spend.lua"),
        include_str!("lua/write_state.lua"),
        include_str!("lua/fast_write.lua"),
        include_str!("lua/numbers.lua"),
        &open,
        include_str!("lua/bucket.lua"),
        &close,
        include_str!("lua/spend.lua"),
        &long,
        "local function read_state(raw, from, written, since)\nlocal till, a, b, birth, given\n",
        include_str!("lua/read_state.lua"),
        "return till, a, b, birth, given, from\nend\n",
        "local function write_state(now, since, new_till, new_a, new_b, birth, given)\nlocal state\n",
        include_str!("lua/write_state.lua"),
        "return state\nend\n",
        &format!("local rules, MODES = {{ {rules}}}, {MODES}\n"),
        include_str!("lua/value.lua"),
        include_str!("lua/inherit.lua"),
        include_str!("lua/ask.lua"),
        include_str!("lua/change.lua"),
        include_str!("lua/request.lua"),
        include_str!("lua/reply.lua"),
    ];
    parts.concat()
}

/// Constants with these names, in capitals, for numbers from `first` on.
fn numbered(first: usize, names: &[&str]) -> String {
    let numbers: Vec<_> = (first..first + names.len()).map(|number| number.to_string()).collect();
    format!("local {} = {}\n", names.join(", ").to_uppercase(), numbers.join(", "))
}

/// This part of the files of these algorithms, each for buckets of its kind.
fn of_each(name: &str, algorithms: &[(&str, &str)]) -> String {
    let cases: Vec<_> = algorithms
        .iter()
        .map(|(algorithm, file)| {
            format!("if kind == {} then\n{}\n", algorithm.to_uppercase(), part(file, name))
        })
        .collect();
    format!("{}end\n", cases.join("else"))
}

/// The lines of a file after the line that begins this part.
fn part<'a>(file: &'a str, name: &str) -> &'a str {
    let mut parts = file.split("\n--- ").skip(1);
    parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('\n')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sluicegate_core::store::Mode;
    use sluicegate_core::{Algorithm, Policy};

    use super::*;

    #[test]
    fn each_algorithm_has_all_parts_under_its_number() {
        let names = ["open", "close", "long"];
        for (name, file) in ALGORITHMS {
            assert!(names.iter().all(|part| !super::part(file, part).is_empty()), "{name}");
        }
        let policies = Algorithm::ALL.map(|algorithm| Policy::builder("any", algorithm, "5/s").build());
        let kinds = policies.map(|policy| {
            policy.expect("every algorithm keeps this quota").quotas()[0].rule().numbers().kind()
        });
        // The last one is a calendar's, which no algorithm chooses.
        assert_eq!(kinds.into_iter().max().map(usize::from), Some(KINDS - 1));
        assert!(text().contains("local GCRA, WINDOW, COUNTER, LOG, CALENDAR = 1, 2, 3, 4, 5\n"));
    }

    #[test]
    fn the_script_has_a_change_for_each_mode_but_a_peek_and_a_take_which_is_a_spend() {
        let text = text();
        for name in MODE_NAMES {
            let changes = !["peek", "take"].contains(&name);
            assert_eq!(text.contains(&format!("change[{}] = ", name.to_uppercase())), changes, "{name}");
        }
        assert_eq!(text.matches("\nchange[").count(), MODES - 2);
        assert_eq!(usize::from(Mode::Lease.number()), MODES - 1);
    }
}
