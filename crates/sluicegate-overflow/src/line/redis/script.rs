//! The script of a line: one text, assembled from the files beside this one.

use std::sync::LazyLock;

use sluicegate_redis::Script;

/// The files with functions, in the order in which they use each other.
const FUNCTIONS: [&str; 5] = [
    include_str!("numbers.lua"),
    include_str!("share.lua"),
    include_str!("places.lua"),
    include_str!("gate.lua"),
    include_str!("schedule.lua"),
];

/// Decides one call of a line.
pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        [
            include_str!("head.lua"),
            // A function within a function reaches what is outside of both without a search among all locals.
            "return (function()\n",
            &kept_numbers(),
            &FUNCTIONS.concat(),
            "end)()\n",
        ]
        .concat(),
    )
});

/// The numbers of a line in the order in which they are kept, and those of its rate, which follow.
const NUMBERS: [&str; 46] = [
    "now",
    "clock",
    "appointed",
    "mode",
    "share",
    "till",
    "parts",
    "last",
    "is_open",
    "opens_after",
    "early",
    "gate",
    "gate_at",
    "patience",
    "asked_patience",
    "asked",
    "asked_gate",
    "asked_share",
    "share_before",
    "silent_from",
    "silent_to",
    "silent_until",
    "again_to",
    "back_to",
    "raised",
    "raised_until",
    "raised_share",
    "opened_to",
    "walked_in",
    "full_gate",
    "full_at",
    "given",
    "first",
    "next",
    "swept",
    "waiting",
    "passed_over",
    "admitted",
    "ended_until",
    "renewed",
    "block",
    "first_block",
    "page_us",
    "room",
    "page",
    "first_page",
];
const RATE: [&str; 5] = ["unit", "ticks", "spacing", "limit", "period"];

/// The functions `read` and `packed` of the script: each number of a line is a double, which takes a third of the time of a map.
fn kept_numbers() -> String {
    let count = NUMBERS.len() + RATE.len();
    let fields = |names: &[&str], before: usize| -> Vec<String> {
        names.iter().zip(before + 1..).map(|(name, at)| format!("{name} = n[{at}]")).collect()
    };
    let values = NUMBERS.map(|name| format!("line.{name}")).into_iter();
    let values: Vec<_> = values.chain(RATE.map(|name| format!("line.rate.{name}"))).collect();
    format!(
        "local FORM = '<{}'\n\
         local function read(kept)\n\
         local n = {{ struct.unpack(FORM, kept) }}\n\
         line = {{ {}, rate = {{ {} }}, came = cmsgpack.unpack(string.sub(kept, n[{}])) }}\n\
         end\n\
         local function packed()\n\
         return struct.pack(FORM, {}) .. cmsgpack.pack(line.came)\n\
         end\n",
        "d".repeat(count),
        fields(&NUMBERS, 0).join(", "),
        fields(&RATE, NUMBERS.len()).join(", "),
        count + 1,
        values.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A number that is not kept would be nothing in the next call.
    #[test]
    fn each_number_of_a_line_that_the_script_uses_is_kept() {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let code =
            FUNCTIONS.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().starts_with("--"));
        let used: BTreeSet<&str> = code
            .flat_map(|line| line.split("line.").skip(1))
            .map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default())
            .collect();
        let kept: BTreeSet<&str> = NUMBERS.into_iter().chain(["rate", "came"]).collect();
        assert_eq!(used, kept);
    }
}
