//! Skips a value of JSON that comes in pieces: [`Passed`].

use memchr::memchr2;

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
