//! Finds fields of JSON objects that come in pieces: [`JsonScanner`]. There may be one object, a list of objects, or one on each line (NDJSON).
//!
//! It reads each byte once, and keeps the current name and one value per field, whatever the length and depth of the text: only
//! objects on the path of a field are entered, and all other values are skipped by counting brackets. It does not validate.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use smallvec::SmallVec;

use super::object::Passed;
use crate::json::FieldPath;
use crate::json::object::whole_number;

/// The bytes that one byte of a name may take: `\u0061` is `a`.
const LONGEST_ESCAPE: usize = 6;

/// The longest number of a field, in bytes. A longer one is not found.
const LONGEST_NUMBER: usize = 64;

/// Reads whole numbers at some paths of objects. A repeated field counts with its last value, as in `serde_json`; a number that is not
/// [whole](whole_number), or is negative, is not found. Of several objects, the last one that has a field counts.
#[derive(Clone, Debug)]
pub(crate) struct JsonScanner {
    fields: SmallVec<[WantedField; 2]>,
    at: ScanPart,
    /// The number of open objects within the outermost one; all are on the path of a field.
    depth: usize,
    /// The name or number that is being read, a name with its escapes.
    name: SmallVec<[u8; 32]>,
    /// The longest name that can be one of a path.
    longest: usize,
}

#[derive(Clone, Debug)]
struct WantedField {
    path: FieldPath,
    /// The number of names at the beginning of the path that lead to the scanner's position.
    matched: usize,
    found: Option<u64>,
    /// The number in an earlier object.
    earlier: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum ScanPart {
    /// Before an object, or between objects.
    Start,
    /// Before a name, or the end of an object.
    Object,
    /// In a name.
    Name {
        escaped: bool,
    },
    Colon,
    Value,
    /// In the number of a field.
    Number,
    /// In a skipped value, or before it.
    Within(Passed),
    /// After a value that is not an object.
    End,
}

impl JsonScanner {
    pub(crate) fn new(paths: Vec<FieldPath>) -> Self {
        let paths = paths.into_iter();
        let fields: SmallVec<_> =
            paths.map(|path| WantedField { path, matched: 0, found: None, earlier: None }).collect();
        let names = fields.iter().flat_map(|field: &WantedField| field.path.names());
        let longest = names.map(|name| name.len() * LONGEST_ESCAPE).max().unwrap_or(0);
        Self { fields, at: ScanPart::Start, depth: 0, name: SmallVec::new(), longest }
    }

    /// The numbers found so far of the fields in this range.
    pub(crate) fn found(&self, fields: Range<usize>) -> impl Iterator<Item = Option<u64>> {
        self.fields.get(fields).unwrap_or_default().iter().map(|field| field.found.or(field.earlier))
    }

    /// The bytes that are held for names.
    #[cfg(test)]
    pub(crate) fn name_capacity(&self) -> usize {
        self.name.capacity()
    }

    /// Reads the next piece of the text.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = match self.at {
                ScanPart::Within(value) => self.pass(value, bytes),
                ScanPart::Name { escaped } => self.read_name(escaped, bytes),
                ScanPart::End => return,
                ScanPart::Number => self.read_number(bytes),
                _ if byte.is_ascii_whitespace() => rest,
                ScanPart::Start => {
                    self.at = match byte {
                        b'{' => ScanPart::Object,
                        // Of a list of objects.
                        b'[' | b',' | b']' => ScanPart::Start,
                        _ => ScanPart::End,
                    };
                    rest
                }
                ScanPart::Object => {
                    self.in_object(byte);
                    rest
                }
                ScanPart::Colon => {
                    self.at = if byte == b':' { ScanPart::Value } else { ScanPart::End };
                    rest
                }
                ScanPart::Value => self.begin_value(byte, bytes),
            };
        }
    }

    fn in_object(&mut self, byte: u8) {
        match byte {
            b',' => {}
            b'"' => {
                self.name.clear();
                self.at = ScanPart::Name { escaped: false };
            }
            b'}' if self.depth == 0 => {
                for field in &mut self.fields {
                    field.earlier = field.found.take().or(field.earlier);
                }
                self.at = ScanPart::Start;
            }
            b'}' => {
                self.depth -= 1;
                self.end_value();
            }
            _ => self.at = ScanPart::End,
        }
    }

    fn read_name<'a>(&mut self, escaped: bool, bytes: &'a [u8]) -> &'a [u8] {
        let length = if escaped { 1 } else { memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len()) };
        let (read, rest) = bytes.split_at(length);
        if self.name.is_empty() && rest.first() == Some(&b'"') {
            // Nearly every name: whole, and without escapes.
            self.match_name(read);
            return &rest[1..];
        }
        self.keep(read, self.longest);
        let Some((&end, behind)) = rest.split_first().filter(|_| !escaped) else {
            self.at = ScanPart::Name { escaped: false };
            return rest;
        };
        if end == b'"' {
            let read = std::mem::take(&mut self.name);
            // An unreadable name matches no path, like the empty name, which no path has.
            self.match_name(plain(&read, self.longest).as_deref().unwrap_or_default());
        } else {
            self.keep(&[end], self.longest);
            self.at = ScanPart::Name { escaped: true };
        }
        behind
    }

    /// Keeps these bytes, up to one more than the longest valid text.
    fn keep(&mut self, read: &[u8], longest: usize) {
        let room = (longest + 1).saturating_sub(self.name.len());
        self.name.extend_from_slice(&read[..read.len().min(room)]);
    }

    /// Finds the fields with this name on their paths.
    fn match_name(&mut self, name: &[u8]) {
        let depth = self.depth;
        self.at = ScanPart::Within(Passed::default());
        for field in self.fields.iter_mut().filter(|field| field.matched == depth) {
            if field.path.names().get(depth).is_some_and(|own| own.as_bytes() == name) {
                field.matched = depth + 1;
                self.at = ScanPart::Colon;
                // The same name may have come before.
                field.found = None;
            }
        }
    }

    fn begin_value<'a>(&mut self, byte: u8, bytes: &'a [u8]) -> &'a [u8] {
        let here = self.depth + 1;
        let mut wanted = self.fields.iter().filter(|field| field.matched == here);
        self.at = match byte {
            b'{' if wanted.any(|field| field.path.names().len() > here) => {
                self.depth = here;
                ScanPart::Object
            }
            b'-' | b'0'..=b'9' if wanted.any(|field| field.path.names().len() == here) => {
                self.at = ScanPart::Number;
                self.name.clear();
                return bytes;
            }
            b',' | b'}' | b']' | b':' => ScanPart::End,
            _ => return self.pass(Passed::default(), bytes),
        };
        &bytes[1..]
    }

    fn read_number<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (digits, rest) = split_word(bytes);
        self.keep(digits, LONGEST_NUMBER);
        if !rest.is_empty() {
            let text = std::str::from_utf8(&self.name).ok().filter(|text| text.len() <= LONGEST_NUMBER);
            let (number, here) = (text.and_then(whole_number), self.depth + 1);
            let whole = |field: &&mut WantedField| field.matched == here && field.path.names().len() == here;
            self.fields.iter_mut().filter(whole).for_each(|field| field.found = number);
            self.end_value();
        }
        rest
    }

    /// Skips a value without fields.
    fn pass<'a>(&mut self, mut value: Passed, bytes: &'a [u8]) -> &'a [u8] {
        match value.pass(bytes) {
            Some(rest) => {
                self.end_value();
                rest
            }
            None => {
                self.at = ScanPart::Within(value);
                &[]
            }
        }
    }

    fn end_value(&mut self) {
        for field in &mut self.fields {
            field.matched = field.matched.min(self.depth);
        }
        self.at = ScanPart::Object;
    }
}

/// The bytes of a number at the beginning, and the bytes after it.
fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}');
    bytes.split_at(bytes.iter().position(is_end).unwrap_or(bytes.len()))
}

/// The bytes without escapes, if they are valid and not too many.
fn plain(read: &[u8], longest: usize) -> Option<Cow<'_, [u8]>> {
    match read.contains(&b'\\') {
        _ if read.len() > longest => None,
        true => unescape(read).map(Cow::Owned),
        false => Some(Cow::Borrowed(read)),
    }
}

/// The bytes of a name with escapes, if they are valid.
fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let (mut name, mut plain) = (std::str::from_utf8(name).ok()?.chars(), String::new());
    while let Some(letter) = name.next() {
        plain.push(match letter {
            '\\' => match name.next()? {
                'u' => match hex(&mut name)? {
                    high @ 0xD800..0xDC00 => {
                        let low = (name.next() == Some('\\') && name.next() == Some('u'))
                            .then(|| hex(&mut name))??;
                        char::decode_utf16([high, low]).next()?.ok()?
                    }
                    unit => char::from_u32(u32::from(unit))?,
                },
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                same => same,
            },
            letter => letter,
        });
    }
    Some(plain.into_bytes())
}

/// The UTF-16 unit of four digits.
fn hex(digits: &mut std::str::Chars<'_>) -> Option<u16> {
    let unit = (0..4).try_fold(0, |unit, _| Some(unit * 16 + digits.next()?.to_digit(16)?))?;
    u16::try_from(unit).ok()
}
