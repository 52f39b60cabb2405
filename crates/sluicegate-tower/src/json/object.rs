//! Reads fields of JSON: of a whole object, as `serde_json` reads it ([`read_object`]), and of server-sent events that come in
//! pieces ([`EventStream`]).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sluicegate_core::ConfigError;
use smallvec::SmallVec;

use crate::key::text::config_error;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldValue {
    /// A text; or a number or a word as JSON writes it, a whole number in digits. `None` for `null`, a list or an object.
    pub text: Option<String>,
    /// The number, if it is whole and not negative: `2000.0` and `2e3` are 2000.
    pub number: Option<u64>,
}

/// The values of these fields, in their order; `None` unless the text is one JSON object. A repeated name counts with its last value. A mark of
/// the byte order in front, which some programs write, is skipped.
pub(crate) fn read_object(text: &[u8], paths: &[FieldPath]) -> Option<Vec<Option<FieldValue>>> {
    let mut found = vec![None; paths.len()];
    let mut reader = serde_json::Deserializer::from_slice(text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text));
    let on_way = (0..paths.len()).collect();
    let outermost = ValueReader { paths, depth: 0, on_way, found: &mut found };
    (outermost.deserialize(&mut reader).ok()? && reader.end().is_ok()).then_some(found)
}

/// The whole number of a text such as `300`, `2000.0` or `2e3`.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| whole(text.parse().ok()?))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the bounds are checked")]
fn whole(number: f64) -> Option<u64> {
    /// 2^53, up to which each whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
}

/// Reads a value; tells whether it was an object.
struct ValueReader<'a> {
    paths: &'a [FieldPath],
    /// The number of names that lead to the value.
    depth: usize,
    /// The indices of the paths that lead here, or further in.
    on_way: SmallVec<[usize; 4]>,
    found: &'a mut [Option<FieldValue>],
}

impl ValueReader<'_> {
    fn set(&mut self, text: Option<String>, number: Option<u64>) {
        let value = FieldValue { text, number };
        for index in &self.on_way {
            if self.paths[*index].names().len() == self.depth {
                self.found[*index] = Some(value.clone());
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<bool, A::Error> {
        self.set(None, None);
        while let Some(name) = map.next_key::<String>()? {
            let next =
                |index: &usize| self.paths[*index].names().get(self.depth).is_some_and(|own| **own == *name);
            let on_way: SmallVec<[usize; 4]> = self.on_way.iter().copied().filter(next).collect();
            if on_way.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            // The same name may have come before.
            on_way.iter().for_each(|index| self.found[*index] = None);
            let Self { paths, depth, .. } = self;
            map.next_value_seed(ValueReader { paths, depth: depth + 1, on_way, found: self.found })?;
        }
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<bool, A::Error> {
        self.set(None, None);
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(false)
    }

    fn visit_unit<E: Error>(mut self) -> Result<bool, E> {
        self.set(None, None);
        Ok(false)
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<bool, E> {
        self.set(Some(text.to_owned()), None);
        Ok(false)
    }

    fn visit_bool<E: Error>(mut self, word: bool) -> Result<bool, E> {
        self.set(Some(word.to_string()), None);
        Ok(false)
    }

    fn visit_u64<E: Error>(mut self, number: u64) -> Result<bool, E> {
        self.set(Some(number.to_string()), Some(number));
        Ok(false)
    }

    fn visit_i64<E: Error>(mut self, number: i64) -> Result<bool, E> {
        self.set(Some(number.to_string()), None);
        Ok(false)
    }

    fn visit_f64<E: Error>(mut self, number: f64) -> Result<bool, E> {
        let whole = whole(number);
        let text = whole.map_or_else(|| number.to_string(), |number| number.to_string());
        self.set(Some(text), whole);
        Ok(false)
    }
}

/// The longest path, in bytes.
const LONGEST_PATH: usize = 256;

/// The names of nested objects and a field, as in `usage.total_tokens`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FieldPath(Arc<Names>);

struct Names {
    names: Box<[Box<str>]>,
    /// Searches for the last of them.
    last: Finder<'static>,
}

impl PartialEq for FieldPath {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

impl Eq for FieldPath {}

impl FieldPath {
    /// The path with these names, separated by dots.
    pub(crate) fn parse(path: &str) -> Result<Self, ConfigError> {
        let problem = if path.len() > LONGEST_PATH {
            Some(format!("has {} bytes: at most {LONGEST_PATH} fit", path.len()))
        } else if path.split('.').any(str::is_empty) {
            Some("has an empty name: write names that dots separate, as in \"usage.total_tokens\"".to_owned())
        } else if path.contains(|letter: char| letter.is_whitespace() || "[]*$/\"".contains(letter)) {
            Some("is not a list of names: write names that dots separate, as in \"usage.total_tokens\"; elements of lists cannot be named".to_owned())
        } else {
            None
        };
        match problem {
            Some(problem) => Err(config_error(format!("the field {path:?} {problem}"))),
            None => {
                let last = path.rsplit('.').next().unwrap_or(path);
                let last = Finder::new(last).into_owned();
                Ok(Self(Arc::new(Names { names: path.split('.').map(Box::from).collect(), last })))
            }
        }
    }

    /// Whether it is equal to this text.
    pub(crate) fn is(&self, path: &str) -> bool {
        self.names().iter().map(|name| &**name).eq(path.split('.'))
    }

    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.0.names
    }

    /// Whether a text without escapes may have the field.
    pub(crate) fn may_be_in(&self, text: &[u8]) -> bool {
        self.0.last.find(text).is_some()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join("."))
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The lowest and the highest bit of each byte of a word.
const LOWEST: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);

/// A skipped value, from the end of its name on. In a list or an object only brackets are counted; it reads
/// eight bytes at a time, and single bytes only if there are brackets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// The number of open brackets.
    open: u64,
    /// `HIGHEST` in a text, otherwise 0.
    text: u64,
    /// In a text, after a backslash.
    is_escaped: bool,
}

impl Passed {
    /// Reads the next piece; returns the bytes after the value once it has ended.
    pub(super) fn pass<'a>(&mut self, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.open == 0 && self.text == 0 {
            let begin =
                bytes.iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b',' | b'}' | b']'))?;
            match bytes[begin] {
                b'"' => self.text = HIGHEST,
                b'{' | b'[' => self.open = 1,
                // After a number or a word.
                _ => return Some(&bytes[begin..]),
            }
            bytes = &bytes[begin + 1..];
        }
        while !bytes.is_empty() {
            if std::mem::take(&mut self.is_escaped) {
                bytes = &bytes[1..];
                continue;
            }
            let (word, length) = first_word(bytes);
            let (quotes, escapes) = (equal(word, b'"'), equal(word, b'\\'));
            if self.text != 0 && quotes | escapes == 0 {
                bytes = self.pass_text(&bytes[length..]);
                continue;
            }
            // Up to the first escape, the word is read at once.
            let before = escapes ^ escapes.wrapping_sub(1);
            let quotes = quotes & before;
            if self.open == 0 && quotes != 0 {
                return Some(&bytes[place(quotes) + 1..]);
            }
            let text = behind_odd(quotes) ^ self.text;
            let brackets = brackets(word) & before & !text;
            if brackets != 0
                && let Some(end) = self.count(brackets, word)
            {
                return Some(&bytes[end + 1..]);
            }
            if escapes == 0 {
                self.text = (text >> 63) * HIGHEST;
                bytes = &bytes[length..];
            } else {
                let place = place(escapes);
                self.is_escaped = (text >> (8 * place)) & 0x80 != 0;
                self.text = if self.is_escaped { HIGHEST } else { 0 };
                bytes = &bytes[place + 1..];
            }
        }
        None
    }

    /// Reads a text up to the quotation mark that ends it.
    fn pass_text<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while let Some(next) = memchr2(b'"', b'\\', bytes) {
            if bytes[next] == b'"' {
                return &bytes[next..];
            }
            let Some(behind) = bytes.get(next + 2..) else {
                self.is_escaped = true;
                break;
            };
            bytes = behind;
        }
        &[]
    }

    /// Counts these brackets of a word; returns the index of the bracket that ends the value.
    fn count(&mut self, mut brackets: u64, word: u64) -> Option<usize> {
        // This bit of a byte, here moved to its highest, is set in brackets that close.
        let closing = brackets & (word << 5);
        let closed = count(closing);
        if closed < self.open {
            self.open = self.open.saturating_add(count(brackets)) - 2 * closed;
            return None;
        }
        while brackets != 0 {
            let first = brackets & brackets.wrapping_neg();
            self.open = if closing & first == 0 { self.open.saturating_add(1) } else { self.open - 1 };
            if self.open == 0 {
                return Some(place(first));
            }
            brackets ^= first;
        }
        None
    }
}

/// The first bytes as a word, padded with zeros, and their number.
fn first_word(bytes: &[u8]) -> (u64, usize) {
    match bytes.first_chunk() {
        Some(word) => (u64::from_le_bytes(*word), 8),
        None => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            (u64::from_le_bytes(word), bytes.len())
        }
    }
}

/// The highest bit of each byte of the word that equals this byte.
fn equal(word: u64, byte: u8) -> u64 {
    let differs = word ^ (LOWEST * u64::from(byte));
    // The sum reaches the highest bit unless the other seven are zero; no byte carries into the next.
    !(((differs & !HIGHEST) + !HIGHEST) | differs) & HIGHEST
}

/// The highest bit of each byte that is a bracket; also of some letters, which occur only in texts.
fn brackets(word: u64) -> u64 {
    // Brackets differ in no other bits.
    const OWN: u64 = LOWEST * 0b10_0110;
    equal(word & !OWN, b'Y')
}

/// The number of marks.
fn count(marks: u64) -> u64 {
    (marks >> 7).wrapping_mul(LOWEST) >> 56
}

/// The index of the first mark.
fn place(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// The highest bit of each byte with an odd number of these marks up to and including it.
fn behind_odd(mut marks: u64) -> u64 {
    marks ^= marks << 8;
    marks ^= marks << 16;
    marks ^ marks << 32
}

/// The most bytes that are kept of an event. A longer one is ignored.
const LONGEST_EVENT: usize = 1024 * 1024;

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
        if data.len() <= LONGEST_EVENT
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
    let room = (LONGEST_EVENT + 1).saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
