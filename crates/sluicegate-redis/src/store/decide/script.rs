//! The script is one text, so that Redis caches it once: `head.lua`, then three ways to decide a request, each of which leaves to the next
//! what it does not know. `single.lua` decides spends from one bucket, the most usual requests; `fast.lua` is a flat loop without functions
//! or tables, for values with only the asker's own rules; and the long way, the other files, decides everything: several rules in a value,
//! turns, refunds, calendars, the same bucket twice. A line `--> NAME` of a file stands for lines that several ways need, so that each
//! algorithm and the form of states are written once.
//!
//! Each algorithm has one file with three parts, which use the names of `head.lua`:
//!
//! | part | purpose |
//! |---|---|
//! | `open` | reads the bucket of a state (`till`, `a`, `b`) at a moment, under the numbers of its rule: the `start` of its window, the units `used` in it, the units of this and the previous window that count (`counted`), and whether later windows have reserved turns (`closed`) |
//! | `close` | makes the state of a bucket from the units in `used` |
//! | `long` | the functions that only the long way needs |
//!
//! The long way is a function inside the loop of the short one, made when a call first needs it.

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

/// The files of the long way before and after the functions of the algorithms.
const BUCKET: &str = include_str!("lua/bucket.lua");
const REQUESTS: [&str; 5] = [
    include_str!("lua/value.lua"),
    include_str!("lua/inherit.lua"),
    include_str!("lua/ask.lua"),
    include_str!("lua/change.lua"),
    include_str!("lua/request.lua"),
];

fn text() -> String {
    let names = ALGORITHMS.map(|(name, _)| name);
    let constants = [numbered(0, &MODE_NAMES), numbered(1, &names)].concat();
    let ways = [include_str!("lua/single.lua"), include_str!("lua/fast.lua")].concat();
    [include_str!("lua/head.lua"), &constants, &expanded(&ways)].concat()
}

/// The long way.
fn long() -> String {
    let functions = ALGORITHMS.map(|(_, file)| part(file, "long")).concat();
    let rules = ALGORITHMS.map(|(name, _)| format!("[{}] = {name}, ", name.to_uppercase())).concat();
    let known = format!("local rules, MODES = {{ {rules}}}, {MODES}\n");
    expanded(&[BUCKET, &functions, &known, &REQUESTS.concat()].concat())
}

/// The text with what each line `--> NAME` stands for: a part of the state, the long way, or a part of each of the algorithms that are named
/// after a colon.
fn expanded(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let Some(inserted) = line.trim().strip_prefix("--> ") else { return line.to_owned() };
        match inserted.split_once(": ") {
            Some((name, algorithms)) => of_each(name, algorithms),
            None if inserted == "long" => long(),
            None => part(include_str!("lua/state.lua"), inserted).to_owned(),
        }
    });
    lines.collect()
}

/// Constants with these names, in capitals, for numbers from `first` on.
fn numbered(first: usize, names: &[&str]) -> String {
    let numbers: Vec<_> = (first..first + names.len()).map(|number| number.to_string()).collect();
    format!("local {} = {}\n", names.join(", ").to_uppercase(), numbers.join(", "))
}

/// This part of the files of these algorithms, each for buckets of its kind.
fn of_each(name: &str, algorithms: &str) -> String {
    let is_named = |(algorithm, _): &&(&str, &str)| algorithms.split(' ').any(|named| named == *algorithm);
    let cases: Vec<_> = ALGORITHMS
        .iter()
        .filter(is_named)
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
    fn no_line_that_stands_for_others_is_left() {
        assert!(!text().contains("-->"));
        for part_name in ["read_state", "write_state"] {
            assert!(!part(include_str!("lua/state.lua"), part_name).is_empty(), "{part_name}");
        }
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
