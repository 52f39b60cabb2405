//! Reads fields of a whole JSON object, as `serde_json` reads it: [`read_object`].

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use crate::json::FieldPath;

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
