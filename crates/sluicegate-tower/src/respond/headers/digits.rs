//! Numbers as field values without an allocation: the seconds of an hour, and most limits.

use http::HeaderValue;

/// The count of numbers that are kept as text.
const KEPT: usize = 4_096;

/// The numbers below `KEPT`, four digits each, in sequence.
static DIGITS: &str = {
    const ALL: [[u8; 4]; KEPT] = digits();
    match str::from_utf8(ALL.as_flattened()) {
        Ok(digits) => digits,
        Err(_) => panic!("digits are ASCII"),
    }
};

/// Each number is the increment of the one before, which is cheap for the compiler's interpreter.
const fn digits() -> [[u8; 4]; KEPT] {
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
}

/// The field value of a number that is kept as text.
#[inline]
pub(super) fn kept(number: u64) -> Option<HeaderValue> {
    let end = 4 * usize::try_from(number).ok().filter(|number| *number < KEPT)? + 4;
    let length = match number {
        0..=9 => 1,
        10..=99 => 2,
        100..=999 => 3,
        _ => 4,
    };
    DIGITS.get(end - length..end).map(HeaderValue::from_static)
}
