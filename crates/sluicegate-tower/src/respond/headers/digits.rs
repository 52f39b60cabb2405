//! Numbers as field values that are there before the program starts: the seconds of an hour, and most limits.

use std::mem;

use http::HeaderValue;

/// How many numbers are kept as text.
const KEPT: usize = 4_096;

/// The numbers below `KEPT`, four digits each.
static DIGITS: [u8; KEPT * 4] = {
    let mut digits = [b'0'; KEPT * 4];
    let mut number = 0;
    while number < KEPT {
        let (mut rest, mut at) = (number, number * 4 + 3);
        while rest > 0 {
            digits[at] = b"0123456789"[rest % 10];
            (rest, at) = (rest / 10, at - 1);
        }
        number += 1;
    }
    digits
};

/// The same as field values: that they are valid ones is found out when this is compiled, not for each response.
pub(super) static VALUES: [HeaderValue; KEPT] = {
    let Ok(digits) = str::from_utf8(&DIGITS) else { panic!("digits are text") };
    let mut values = [const { HeaderValue::from_static("0") }; KEPT];
    let mut number = 1;
    while number < KEPT {
        let (before, _) = digits.split_at(number * 4 + 4);
        let (_, text) = before.split_at(before.len() - 1 - number.ilog10() as usize);
        // Nothing can be dropped while it is compiled.
        mem::forget(mem::replace(&mut values[number], HeaderValue::from_static(text)));
        number += 1;
    }
    values
};
