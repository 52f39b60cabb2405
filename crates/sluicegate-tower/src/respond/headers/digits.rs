//! Numbers as field values without an allocation: the seconds of an hour, and most limits.

use http::HeaderValue;

/// The number of numbers that are kept as text.
const KEPT: usize = 4_096;

/// The numbers below `KEPT`, four digits each. Each is the increment of the one before, which is cheap for the compiler's
/// interpreter.
static DIGITS: [[u8; 4]; KEPT] = {
    let mut all = [*b"0000"; KEPT];
    let mut number = 1;
    while number < KEPT {
        let (mut digits, mut at) = (all[number - 1], 3);
        while digits[at] == b'9' {
            (digits[at], at) = (b'0', at - 1);
        }
        digits[at] += 1;
        all[number] = digits;
        number += 1;
    }
    all
};

/// The field value of a number that is kept as text.
#[inline]
pub(super) fn kept(number: u64) -> Option<HeaderValue> {
    let digits: &'static [u8; 4] = DIGITS.get(usize::try_from(number).ok()?)?;
    let first = match number {
        0..=9 => 3,
        10..=99 => 2,
        100..=999 => 1,
        _ => 0,
    };
    let text = str::from_utf8(&digits[first..]).ok()?;
    Some(HeaderValue::from_static(text))
}
