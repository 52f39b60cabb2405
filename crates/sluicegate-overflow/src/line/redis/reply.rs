//! The replies of the script, and an instance's knowledge of its line.
//!
//! A reply is a list of fields in the order in which the script writes them: words, whole numbers in decimal, and -1 for an unknown
//! number. Any other reply is a protocol error and never a panic, because another version may have written it.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{Quota, StoreError};
use sluicegate_redis::Script;

use crate::line::{LineAnswer, LineMode, LinePlace, LineStanding, LineStatus, LineTurn, NoPlace};

/// Everything that an instance knows about the line without asking.
#[derive(Debug)]
pub(super) struct LineSnapshot {
    status: LineStatus,
    /// The line's time of this status.
    now_us: u64,
    /// Passes that ended early, each with the line's time at which it may be forgotten.
    ended: HashMap<LinePlace, u64>,
    /// The line's time up to which they are known.
    since_us: u64,
}

/// The update from one reply.
pub(super) struct LineUpdate {
    status: LineStatus,
    now_us: u64,
    ended: Vec<(LinePlace, u64)>,
}

impl LineSnapshot {
    /// The view before the first answer: it has these numbers.
    pub(super) fn new(status: LineStatus) -> Self {
        Self { status, now_us: 0, ended: HashMap::new(), since_us: 0 }
    }

    pub(super) fn status(&self) -> LineStatus {
        self.status
    }

    pub(super) fn since_us(&self) -> u64 {
        self.since_us
    }

    /// Notes that this instance ends a pass, which would last for `lasts_us` at most.
    pub(super) fn end(&mut self, place: LinePlace, lasts_us: u64) {
        self.ended.insert(place, self.now_us.saturating_add(lasts_us));
    }

    pub(super) fn has_ended(&self, place: LinePlace) -> bool {
        self.ended.contains_key(&place)
    }

    /// Takes over a reply. If the line's time went back, it is another line, and everything about the former one is forgotten.
    pub(super) fn learn(&mut self, news: LineUpdate) {
        if news.now_us < self.now_us {
            // The line was lost and began anew, without its former places.
            (self.ended, self.since_us) = (HashMap::new(), 0);
        }
        (self.status, self.now_us) = (news.status, news.now_us);
        for (place, until_us) in news.ended {
            self.since_us = self.since_us.max(until_us);
            self.ended.insert(place, until_us);
        }
        self.ended.retain(|_, until_us| *until_us > news.now_us);
    }
}

/// The fields of a reply, one after the other.
struct ReplyFields(std::vec::IntoIter<Vec<u8>>);

impl ReplyFields {
    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.0.next()?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    /// A number, or `None` for -1.
    fn known(&mut self) -> Option<Option<u64>> {
        let text = self.text()?;
        if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn place(&mut self) -> Option<LinePlace> {
        Some(LinePlace::new(self.number()?, u32::try_from(self.number()?).ok()?))
    }

    fn span(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_micros)
    }
}

/// The answer to a poll.
///
/// # Errors
/// When the script does not give such a reply.
pub(super) fn answer(reply: Vec<Vec<u8>>) -> Result<LineAnswer, StoreError> {
    read_answer(ReplyFields(reply.into_iter()))
        .ok_or_else(|| not_understood("the reply is not that of the script of a line"))
}

fn read_answer(mut fields: ReplyFields) -> Option<LineAnswer> {
    Some(match &*fields.text()? {
        "turn" => LineAnswer::Turn(LineTurn::new(fields.place()?, fields.span()?, fields.span()?)),
        "waiting" => {
            let place = fields.place()?;
            let (position, wait, opens_after) = (fields.known()?, fields.known()?, fields.known()?);
            LineAnswer::Waiting(LineStanding {
                position,
                wait: wait.map(Duration::from_micros),
                opens_after: opens_after.map(Duration::from_micros),
                ..LineStanding::new(place, fields.span()?)
            })
        }
        "full" => LineAnswer::NoPlace(NoPlace::Full),
        "many" => LineAnswer::NoPlace(NoPlace::TooMany),
        _ => return None,
    })
}

/// The numbers of a line, and the passes that have ended.
///
/// # Errors
/// When the script does not give such a reply.
pub(super) fn known(reply: Vec<Vec<u8>>) -> Result<LineUpdate, StoreError> {
    read_known(ReplyFields(reply.into_iter()))
        .ok_or_else(|| not_understood("the reply is not that of the script of a line"))
}

fn read_known(mut fields: ReplyFields) -> Option<LineUpdate> {
    let mode = match fields.number()? {
        0 => LineMode::Metered,
        1 => LineMode::Paused,
        _ => LineMode::Open,
    };
    let rate = Quota::new(fields.number()?, Duration::from_nanos(fields.number()?)).burst(1);
    let (waiting, active, admitted) = (fields.number()?, fields.known()?, fields.number()?);
    let (passed_over, wait, now_us) = (fields.number()?, fields.known()?, fields.number()?);
    let mut ended = Vec::new();
    while let Some(member) = fields.text() {
        let (number, lot) = member.split_once(':')?;
        ended.push((LinePlace::new(number.parse().ok()?, lot.parse().ok()?), fields.number()?));
    }
    let wait = wait.map(Duration::from_micros);
    let status = LineStatus { waiting, active, admitted, passed_over, wait, ..LineStatus::new(mode, rate) };
    Some(LineUpdate { status, now_us, ended })
}

/// The number of a mode in the script.
pub(super) fn number_of(mode: LineMode) -> u8 {
    match mode {
        LineMode::Metered => 0,
        LineMode::Paused => 1,
        LineMode::Open => 2,
    }
}

pub(super) fn not_understood(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, problem)
}

/// The files with functions, in the order in which they use each other.
const FUNCTIONS: [&str; 3] =
    [include_str!("numbers.lua"), include_str!("places.lua"), include_str!("schedule.lua")];

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
const NUMBERS: [&str; 25] = [
    "now",
    "clock",
    "appointed",
    "mode",
    "till",
    "parts",
    "last",
    "is_open",
    "early",
    "gate",
    "gate_at",
    "patience",
    "asked_patience",
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
         line = {{ {}, rate = {{ {} }} }}\n\
         end\n\
         local function packed()\n\
         return struct.pack(FORM, {})\n\
         end\n",
        "d".repeat(count),
        fields(&NUMBERS, 0).join(", "),
        fields(&RATE, NUMBERS.len()).join(", "),
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
        let kept: BTreeSet<&str> = NUMBERS.into_iter().chain(["rate"]).collect();
        assert_eq!(used, kept);
    }
}
