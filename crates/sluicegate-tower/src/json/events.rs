//! Finds numbers in server-sent events that come in pieces: [`EventStream`].

use std::ops::Range;

use memchr::memchr2;
use smallvec::SmallVec;

use crate::json::{FieldPath, JsonScanner};

const DATA: &[u8] = b"data";

/// Reads fields of the JSON objects in the `data` of events: the last value of each field counts. Data that is not an object, such as
/// `[DONE]`, and incomplete objects are ignored.
#[derive(Debug)]
pub(crate) struct EventStream {
    at: EventPart,
    /// Whether the last byte was a carriage return, after which a line feed does not end another line.
    after_return: bool,
    event: JsonScanner,
    last: SmallVec<[Option<u64>; 2]>,
}

#[derive(Clone, Copy, Debug)]
enum EventPart {
    /// In the name of a field, with this number of bytes equal to `data`.
    Name(usize),
    Colon,
    Data,
    /// In the rest of another line.
    Other,
}

impl EventStream {
    pub(crate) fn new(paths: Vec<FieldPath>) -> Self {
        let event = JsonScanner::new(paths);
        let last = (0..event.len()).map(|_| None).collect();
        Self { at: EventPart::Name(0), after_return: false, event, last }
    }

    /// The numbers found so far of the fields in this range.
    pub(crate) fn found(&self, fields: Range<usize>) -> impl Iterator<Item = Option<u64>> {
        self.last.get(fields).unwrap_or_default().iter().copied()
    }

    /// Reads the next piece of the stream.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                bytes = rest;
                continue;
            }
            bytes = match self.at {
                _ if is_end(&byte) => {
                    self.end_line();
                    self.after_return = byte == b'\r';
                    rest
                }
                EventPart::Name(length) => {
                    self.at = match DATA.get(length) {
                        Some(next) if *next == byte => EventPart::Name(length + 1),
                        None if byte == b':' => EventPart::Colon,
                        _ => EventPart::Other,
                    };
                    rest
                }
                EventPart::Colon => {
                    self.at = EventPart::Data;
                    if byte == b' ' { rest } else { bytes }
                }
                EventPart::Data | EventPart::Other => {
                    let (line, rest) = bytes.split_at(memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len()));
                    if matches!(self.at, EventPart::Data) && !self.is_skipped(line, rest) {
                        self.read(line);
                    }
                    rest
                }
            };
        }
    }

    fn end_line(&mut self) {
        match self.at {
            // An empty line ends the event.
            EventPart::Name(0) => self.event.reset(),
            EventPart::Data => self.read(b"\n"),
            _ => {}
        }
        self.at = EventPart::Name(0);
    }

    /// Whether this line is a whole event that has none of the fields, like most lines of a stream.
    fn is_skipped(&self, line: &[u8], rest: &[u8]) -> bool {
        let behind = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
        self.event.is_before() && behind.first().is_some_and(is_end) && self.event.lacks_all(line)
    }

    fn read(&mut self, data: &[u8]) {
        if self.event.is_complete() {
            return;
        }
        self.event.feed(data);
        if self.event.is_complete() {
            let found = self.event.found(0..self.last.len());
            self.last.iter_mut().zip(found).for_each(|(last, found)| *last = found.or(*last));
        }
    }
}

fn is_end(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
