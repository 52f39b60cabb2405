//! Numbers as people write them.

/// Writes a number with commas between its thousands, as `12,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        let read = [1, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(read, ["1", "999", "1,000", "1,234,567"]);
    }
}
