//! Shapes that a value may have: a text or a list, a number or a map, a map whose names are the user's.
//!
//! Files are written by people, so one value may stand where a list may; numbers are read as texts, to be told with their place and in the
//! words of the file when they are wrong.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::words;
use crate::at::{At, Position};

/// A map whose names are the user's, in the order of the file.
#[derive(Debug)]
pub(crate) struct Named<V>(pub(crate) Vec<(At<String>, V)>);

impl<V> Default for Named<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Named<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Named<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with their values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key()? {
                    all.push((name, map.next_value()?));
                }
                Ok(Named(all))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

impl<V: JsonSchema> JsonSchema for Named<V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("names_of_{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<V>() })
    }
}

/// A word that is written must have a value: one that is left empty, as by a variable that is set to nothing, does not count as absent.
pub(super) fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A word that a file may have or not.
pub(crate) trait OptionalWord {
    /// The place of the word, if it is written.
    fn place(&self) -> Option<Position>;
}

impl<T> OptionalWord for Option<At<T>> {
    fn place(&self) -> Option<Position> {
        self.as_ref().map(|word| word.place)
    }
}

impl<V> OptionalWord for Named<V> {
    fn place(&self) -> Option<Position> {
        self.0.first().map(|(name, _)| name.place)
    }
}

/// Some words of an entry, each with its place if it is written.
macro_rules! written {
    ($entry:expr; $($word:ident)*) => {
        [$((stringify!($word), $crate::schema::OptionalWord::place(&$entry.$word))),*]
    };
}
pub(crate) use written;

/// Reads values without quotes as texts.
macro_rules! as_texts {
    ($value:ty; $($visit:ident: $scalar:ty),*) => {
        $(fn $visit<E: Error>(self, scalar: $scalar) -> Result<$value, E> {
            self.visit_str(&scalar.to_string())
        })*
    };
}

/// A text, or a list of texts.
#[derive(Clone, Debug)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<At<String>>),
}

impl At<OneOrMany> {
    /// All texts; a single one has the place of the value.
    pub(crate) fn all(&self) -> Vec<At<String>> {
        match &self.value {
            OneOrMany::One(one) => vec![At { value: one.clone(), place: self.place }],
            OneOrMany::Many(many) => many.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany::One(text.to_owned()))
            }

            as_texts! { OneOrMany; visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_bool: bool }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = list.next_element()? {
                    all.push(text);
                }
                Ok(OneOrMany::Many(all))
            }
        }

        deserializer.deserialize_any(Texts)
    }
}

schema!(OneOrMany as "one_or_many", |_| {
    let text = json_schema!({ "type": ["string", "number", "boolean"] });
    json_schema!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1 }] })
});

/// Header fields, parameters, or fields of a body, and the values that they must have.
pub(crate) type FieldValues = Named<At<TextWanted>>;

/// The texts of a part of a request: of a field, a path, a host, or an entry of a descriptor.
#[derive(Clone, Debug)]
pub(crate) enum TextWanted {
    /// A text, in which `*` may stand for any text.
    Text(String),
    /// A regular expression.
    Regex(String),
    /// Whether there must be a text, whichever.
    Presence(bool),
    /// One of these.
    Several(Vec<At<Self>>),
}

entry! {
    /// A text that is described by its form.
    TextForm as "text_form":
    /// A regular expression of the crate `regex` that the whole text matches.
    regex?: String,
    /// `false` where the field must not be there.
    present?: bool,
}

impl At<TextWanted> {
    /// All texts; a single one has the place of the value.
    pub(crate) fn each(&self) -> Vec<Self> {
        match &self.value {
            TextWanted::Several(several) => several.iter().flat_map(Self::each).collect(),
            _ => vec![self.clone()],
        }
    }
}

impl<'de> Deserialize<'de> for TextWanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Wanted;

        impl<'de> Visitor<'de> for Wanted {
            type Value = TextWanted;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of texts, { regex: .. }, or { present: true }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TextWanted, E> {
                Ok(TextWanted::Text(text.to_owned()))
            }

            as_texts! { TextWanted; visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_bool: bool }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<TextWanted, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(TextWanted::Several)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextWanted, A::Error> {
                let TextForm { regex, present } = TextForm::deserialize(MapAccessDeserializer::new(map))?;
                match (regex, present) {
                    (Some(regex), None) => Ok(TextWanted::Regex(regex)),
                    (None, Some(is_present)) => Ok(TextWanted::Presence(is_present)),
                    _ => Err(A::Error::custom("write either regex or present here")),
                }
            }
        }

        deserializer.deserialize_any(Wanted)
    }
}

schema!(TextWanted as "text_wanted", |generator| {
    let text = json_schema!({ "type": ["string", "number", "boolean"] });
    let one = json_schema!({ "anyOf": [text, generator.subschema_for::<TextForm>()] });
    json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
});

/// A text, or names with their values.
#[derive(Debug)]
pub(crate) enum TextOr<T> {
    Text(String),
    Entry(Box<T>),
}

/// Names with their values, in the place of which a text may stand.
pub(crate) trait EntryShape: for<'de> Deserialize<'de> {
    /// Both shapes, for an error.
    const EXPECTED: &'static str;
}

impl<'de, T: EntryShape> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: EntryShape> Visitor<'de> for Either<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TextOr<T>, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            as_texts! { TextOr<T>; visit_u64: u64, visit_i64: i64, visit_f64: f64 }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|entry| TextOr::Entry(Box::new(entry)))
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// Units that a request spends: a number, or a field of the request that says it.
pub(crate) type Cost = TextOr<SaidCost>;

impl EntryShape for SaidCost {
    const EXPECTED: &'static str = "a number, or { header, min, max, missing }, or { json, min, max, missing }, or { bytes: request, min, max }";
}

/// A field of a JSON object, or several with the units that one of each costs.
pub(crate) type PricesEntry = TextOr<Named<At<String>>>;

impl EntryShape for Named<At<String>> {
    const EXPECTED: &'static str = "a field, or { field: units, other: units }";
}

/// The text that the file of API keys has for a key: its tier alone; or its tier, its quotas, or both.
pub(crate) type KeyLine = TextOr<KeyEntry>;

impl EntryShape for KeyEntry {
    const EXPECTED: &'static str = "a tier, or { tier, quota }";
}

entry! {
    /// Units that a header field, a field of the body, or its length says.
    SaidCost as "said_cost":
    /// The name of the header field.
    header?: At<String>,
    /// The field of the request's JSON body, as `max_tokens`.
    json?: At<String>,
    /// `request`: the length of its body.
    bytes?: At<String> = "words::bytes_of_request",
    /// The least that a request costs, at least 1.
    min: At<String>,
    /// The most that a request costs; also the cost where the field is not a number, and where the length is not known.
    max: At<String>,
    /// The cost of requests without the field.
    missing?: At<String> = "words::number",
}

entry! {
    /// The tier and the quotas of an API key.
    KeyEntry as "key_entry":
    tier?: At<String>,
    quota?: At<OneOrMany>,
}

schema!(PricesEntry as "prices", |_| {
    let price = json_schema!({ "type": ["integer", "string"] });
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": price }] })
});

schema!(Cost as "cost", |generator| {
    let header = generator.subschema_for::<SaidCost>();
    json_schema!({ "anyOf": [{ "type": ["integer", "string"] }, header] })
});

/// Entries with their values: as names, in any order, or as a list, in this order.
#[derive(Debug)]
pub(crate) struct DescriptorEntries {
    pub entries: Vec<(At<String>, At<TextWanted>)>,
    pub is_in_order: bool,
}

impl<'de> Deserialize<'de> for DescriptorEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapOrList;

        impl<'de> Visitor<'de> for MapOrList {
            type Value = DescriptorEntries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("entries with their values, as { remote_address: \"*\" }")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let Named(entries) = Named::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DescriptorEntries { entries, is_in_order: false })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(Named(some)) = list.next_element()? {
                    entries.extend(some);
                }
                Ok(DescriptorEntries { entries, is_in_order: true })
            }
        }

        deserializer.deserialize_any(MapOrList)
    }
}

schema!(DescriptorEntries as "descriptor_entries", |generator| {
    let entries = generator.subschema_for::<Named<TextWanted>>();
    json_schema!({ "anyOf": [entries, { "type": "array", "items": entries, "minItems": 1 }] })
});
