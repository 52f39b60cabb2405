//! A share of requests or keys: [`Share`].

use std::fmt;
use std::str::FromStr;

/// A share of requests, written `0.1%` or `0.001`, or of keys, written `1%/keys`.
///
/// ```
/// use sluicegate_replay::Share;
///
/// let share: Share = "0.1%".parse()?;
/// assert!(share.covers(1, 1_000) && !share.covers(2, 1_000));
/// assert!("1%/keys".parse::<Share>()?.is_of_keys());
/// # Ok::<(), String>(())
/// ```
///
/// It is kept in billionths, and compared with counts by whole numbers: 0.1 % of a thousand requests is one, and never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The share in parts of a billion.
    billionths: u64,
    of_keys: bool,
}

const WHOLE: u64 = 1_000_000_000;

impl Share {
    /// Whether it is a share of keys, not of requests.
    pub fn is_of_keys(self) -> bool {
        self.of_keys
    }

    /// Whether `part` of `all` is at most this share.
    ///
    /// No number is rounded: products of both sides are compared.
    pub fn covers(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) <= u128::from(self.billionths) * u128::from(all)
    }
}

impl Share {
    /// Whether `part` of `all` is at least this share.
    pub(crate) fn is_reached(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) >= u128::from(self.billionths) * u128::from(all)
    }
}

impl FromStr for Share {
    type Err = String;

    /// # Errors
    /// When it is any other text, or more than the whole.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a share: write 0.1%, 0.001, or 1%/keys");
        let (number, of_keys) = text.strip_suffix("/keys").map_or((text, false), |number| (number, true));
        let (number, scale) = number.strip_suffix('%').map_or((number, 9), |number| (number.trim_end(), 7));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
            return Err(wrong());
        }
        if fraction.len() > scale {
            return Err(format!(
                "{text:?} is finer than a share can be: use at most nine digits behind the point"
            ));
        }
        let digits = format!("{whole}{fraction:0<scale$}");
        let billionths = digits.parse().ok().filter(|billionths| *billionths <= WHOLE);
        Ok(Self {
            billionths: billionths.ok_or_else(|| format!("{text:?} is more than the whole"))?,
            of_keys,
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.billionths / 10_000_000, self.billionths % 10_000_000);
        write!(f, "{whole}")?;
        if fraction > 0 {
            write!(f, ".{}", format!("{fraction:07}").trim_end_matches('0'))?;
        }
        f.write_str(if self.of_keys { "%/keys" } else { "%" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_prints_as_it_reads() {
        for (text, printed) in [
            ("0.1%", "0.1%"),
            ("0.001", "0.1%"),
            ("100%", "100%"),
            ("1", "100%"),
            (".5%/keys", "0.5%/keys"),
            ("0", "0%"),
        ] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), printed, "{text}");
        }
        for text in
            ["", "%", "101%", "-1%", "1e-3", "1%/users", "1.1", "0.00000000001", "99999999999999999999"]
        {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
