//! From lines to asks: what each line asks of the limits, before any of it is decided.

use bytes::Bytes;
use sluicegate_core::Key;
use sluicegate_tower::limits::{Meeting, Met, MetAsk, NoAsk};
use smallvec::SmallVec;

use crate::counts::{Counts, Puzzle, SHOWN};
use crate::court::Ask;
use crate::format::Format;
use crate::format::time::Clock;
use crate::lines::{Batch, LONGEST};
use crate::order::Came;
use crate::request::Head;
use crate::rows::{Enforced, Rows};

/// A request, and what it asks.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) came: Came,
    pub(crate) asks: SmallVec<[Ask; 1]>,
}

/// Which lines are read, and how much of them is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// From when, in microseconds.
    pub(crate) since_us: Option<u64>,
    /// Until before when.
    pub(crate) until_us: Option<u64>,
    /// A later time cannot be true.
    pub(crate) latest_us: Option<u64>,
    /// Whether lines that are not understood are told by their number alone.
    pub(crate) hides_lines: bool,
}

/// How much is shown of each line that was not understood.
const SHOWN_CHARS: usize = 160;

/// Reads lines in one format.
pub(crate) struct Reader {
    format: Format,
    rows: Rows,
    span: Span,
    head: Head,
    clock: Clock,
    pub(crate) counts: Counts,
}

impl Reader {
    pub(crate) fn new(format: Format, rows: Rows, span: Span) -> Self {
        let (head, clock, counts) = Default::default();
        Self { format, rows, span, head, clock, counts }
    }

    /// The asks of the lines of a batch: none where they are outside of the time, or not understood.
    pub(crate) fn batch(&mut self, number: u64, batch: &Batch) -> Vec<Asked> {
        let mut all = Vec::with_capacity(batch.bytes.len() / 128);
        // One look at all of the text, and one at each line only if that is none.
        let whole = std::str::from_utf8(&batch.bytes);
        for (line, place) in batch.lines() {
            self.counts.read += 1;
            let (bytes, is_long) = (&batch.bytes[place.clone()], place.len() > LONGEST);
            let mended: Bytes;
            let (text, bytes) = match whole.map(|whole| &whole[place]).or_else(|_| std::str::from_utf8(bytes))
            {
                Ok(text) => (text, &batch.bytes),
                Err(_) => {
                    mended = String::from_utf8_lossy(bytes).into_owned().into();
                    (std::str::from_utf8(&mended).unwrap_or_default(), &mended)
                }
            };
            match if is_long { Err(TOO_LONG) } else { self.asked(text, bytes) } {
                Ok(asked) => all.extend(asked),
                Err(reason) => self.not_understood((number, batch.log, line), reason, text),
            }
        }
        all
    }

    fn not_understood(&mut self, (batch, log, line): (u64, usize, u64), reason: &'static str, text: &str) {
        self.counts.not_understood += 1;
        if self.counts.shown.len() < SHOWN {
            // A log holds what clients write: none of it may reach a terminal as it is.
            let begins = || text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
            let begins = (!self.span.hides_lines).then(begins);
            self.counts.shown.push(Puzzle { batch, log, line, reason, begins });
        }
    }

    /// The ask of a line, which stands in these bytes.
    fn asked(&mut self, line: &str, bytes: &Bytes) -> Result<Option<Asked>, &'static str> {
        let entry = self.format.parse(line, &mut self.clock)?;
        let (moment, status) = (entry.arrival()?, entry.status);
        let Span { since_us, until_us, latest_us, .. } = self.span;
        if latest_us.is_some_and(|latest| moment.us > latest) {
            return Err("its time has not come yet");
        }
        let request = self.head.of(entry, bytes)?;
        if since_us.is_some_and(|since| moment.us < since) || until_us.is_some_and(|until| moment.us >= until)
        {
            self.counts.outside += 1;
            return Ok(None);
        }
        let mut asks = SmallVec::<[Ask; 1]>::new();
        let (rows, left_out) = (&self.rows, &mut self.counts.left_out);
        let mut enforced = Enforced::default();
        let meeting = rows.limits.meet(request, |Met { limit, asks: met, .. }| {
            let row = met.as_ref().ok().and_then(|met| rows.row(limit, met.limiter));
            if let (Ok(MetAsk { is_enforced: true, .. }), Some(row)) = (&met, row) {
                enforced.add(row);
            }
            if !rows.is_replayed(limit) {
                return;
            }
            match met {
                // The service has seen more of the request than the log has kept.
                Ok(met) if *met.key == Key::shared() => left_out.add(limit, NO_KEY, 1),
                Ok(MetAsk { key, cost, is_enforced, .. }) => {
                    let row = row.and_then(|row| row.row);
                    asks.extend(row.map(|row| Ask { row, key: key.clone(), cost, is_enforced }));
                }
                Err(NoAsk::NoKey(missing)) => left_out.add(limit, missing.reason(), 1),
                Err(_) => left_out.add(limit, "the limit refuses such requests whatever they have spent", 1),
            }
        });
        match meeting {
            Meeting::Exempt => self.counts.exempt += 1,
            Meeting::Blocked => self.counts.blocked += 1,
            Meeting::Limits => {}
            _ => left_out.add(0, "what the limits ask for is not known at once", 1),
        }
        if let Some(mistake) = enforced.mistake() {
            asks.iter().for_each(|ask| left_out.add(rows.limit_of[ask.row], mistake, 1));
            asks.clear();
        }
        Ok(Some(Asked { came: Came { at_us: moment.us, is_whole: moment.is_whole, status }, asks }))
    }
}

const NO_KEY: &str = "the log does not say the key";
const TOO_LONG: &str = "it is longer than 256 KiB";
