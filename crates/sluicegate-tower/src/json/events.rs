//! Finds numbers in server-sent events that come in pieces: [`EventStream`].

use std::ops::Range;

use memchr::{memchr, memchr2};
use smallvec::SmallVec;

use crate::json::{FieldPath, read_object};

/// The most bytes that are kept of an event. A longer one is ignored.
const LONGEST: usize = 1024 * 1024;

/// Reads fields of the JSON objects in the `data` of events: the last value of each field counts. Data that is not an object, such as
/// `[DONE]`, and incomplete objects are ignored.
#[derive(Clone, Debug)]
pub(crate) struct EventStream {
    paths: Vec<FieldPath>,
    /// The line that is being read, if it came in pieces.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return, after which a line feed does not end another line.
    after_return: bool,
    /// The data of the event.
    data: Vec<u8>,
    last: SmallVec<[Option<u64>; 2]>,
}

impl EventStream {
    pub(crate) fn new(paths: Vec<FieldPath>) -> Self {
        let last = paths.iter().map(|_| None).collect();
        Self { paths, line: Vec::new(), after_return: false, data: Vec::new(), last }
    }

    /// The numbers found so far of the fields in this range, also in a last event that no empty line ends.
    pub(crate) fn found(&self, fields: Range<usize>) -> impl Iterator<Item = Option<u64>> {
        let mut ended = self.clone();
        ended.feed(b"\n\n");
        ended.last.into_iter().skip(fields.start).take(fields.len())
    }

    /// Reads the next piece of the stream.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return)
                && let Some(rest) = bytes.strip_prefix(b"\n")
            {
                bytes = rest;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                keep(bytes, &mut self.line);
                return;
            };
            self.after_return = bytes[end] == b'\r';
            if self.line.is_empty() {
                self.read_line(&bytes[..end]);
            } else {
                keep(&bytes[..end], &mut self.line);
                let line = std::mem::take(&mut self.line);
                self.read_line(&line);
            }
            bytes = &bytes[end + 1..];
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        if let Some(data) = line.strip_prefix(b"data:") {
            keep(data.strip_prefix(b" ").unwrap_or(data), &mut self.data);
            keep(b"\n", &mut self.data);
        } else if line.is_empty() {
            self.end_event();
        }
    }

    fn end_event(&mut self) {
        let data = std::mem::take(&mut self.data);
        // Most events of a stream have none of the fields.
        let may_have = memchr(b'\\', &data).is_some() || self.paths.iter().any(|path| path.may_be_in(&data));
        if data.len() <= LONGEST
            && may_have
            && let Some(found) = read_object(&data, &self.paths)
        {
            let numbers = found.into_iter().map(|value| value?.number);
            self.last.iter_mut().zip(numbers).for_each(|(last, number)| *last = number.or(*last));
        }
    }
}

/// Keeps these bytes, up to one more than the longest event.
fn keep(bytes: &[u8], kept: &mut Vec<u8>) {
    let room = (LONGEST + 1).saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
