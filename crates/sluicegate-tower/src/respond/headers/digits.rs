//! Numbers as field values that are there before the program starts: the seconds of an hour, and most limits.

use std::mem;

use http::HeaderValue;

/// How many numbers are kept as text.
const KEPT: usize = 4_096;

/// The numbers below `KEPT`, four digits each. Each is counted up from the one before: this table and the next are made
/// whenever the crate is compiled, by an interpreter.
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

/// The same as field values: that they are valid ones is found out when this is compiled, not for each response.
pub(super) static VALUES: [HeaderValue; KEPT] = {
    let mut values = [const { HeaderValue::from_static("0") }; KEPT];
    let mut number = 1;
    while number < KEPT {
        let digits: &[u8] = match (&DIGITS[number], number) {
            ([_, _, _, digits @ ..], ..10) => digits,
            ([_, _, digits @ ..], ..100) => digits,
            ([_, digits @ ..], ..1_000) => digits,
            (digits, _) => digits,
        };
        let Ok(text) = str::from_utf8(digits) else { panic!("digits are text") };
        // Nothing can be dropped while it is compiled.
        mem::forget(mem::replace(&mut values[number], HeaderValue::from_static(text)));
        number += 1;
    }
    values
};
