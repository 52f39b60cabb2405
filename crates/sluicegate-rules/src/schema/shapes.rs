//! Shapes that a value may have: a text or a list, a number or a map, a map whose names are the user's.
//!
//! Files are written by people, so one value may stand where a list may; numbers are read as texts, to be told with their place and in the
//! words of the file when they are wrong.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::at::At;

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

            fn visit_u64<E: Error>(self, number: u64) -> Result<OneOrMany, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<OneOrMany, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<OneOrMany, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<OneOrMany, E> {
                self.visit_str(&value.to_string())
            }

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

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "one_or_many".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = json_schema!({ "type": ["string", "number", "boolean"] });
        json_schema!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1 }] })
    }
}

/// Header fields or query parameters, and the values that they must have.
pub(crate) type FieldValues = Named<At<String>>;

/// Units that a request spends: a number, or a field of the request that says it.
#[derive(Debug)]
pub(crate) enum Cost {
    /// A fixed number for all requests.
    Fixed(String),
    /// A number that each request brings.
    Said(Box<SaidCost>),
}

/// Units that a header field or a field of the JSON body says.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "said_cost")]
pub(crate) struct SaidCost {
    /// The name of the header field.
    #[serde(default, deserialize_with = "said")]
    pub header: Option<At<String>>,
    /// The field of the request's JSON body, as `max_tokens`.
    #[serde(default, deserialize_with = "said")]
    pub json: Option<At<String>>,
    /// The least that a request costs, at least 1.
    pub min: At<String>,
    /// The most that a request costs; also the cost where the field is not a number.
    pub max: At<String>,
    /// The cost of requests without the field.
    pub missing: At<String>,
}

/// A field of a JSON object, or several with the units that one of each costs.
#[derive(Debug)]
pub(crate) enum PricesEntry {
    /// A field whose number is the cost.
    One(String),
    /// Fields with their prices.
    Each(Named<At<String>>),
}

/// The text that the file of API keys has for a key.
#[derive(Debug)]
pub(crate) enum KeyLine {
    /// Its tier alone.
    Tier(String),
    /// Its tier, its quotas, or both.
    Entry(Box<KeyEntry>),
}

/// The tier and the quotas of an API key.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyEntry {
    #[serde(default, deserialize_with = "said")]
    pub tier: Option<At<String>>,
    #[serde(default, deserialize_with = "said")]
    pub quota: Option<At<OneOrMany>>,
}

impl<'de> Deserialize<'de> for KeyLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TierOrEntry;

        impl<'de> Visitor<'de> for TierOrEntry {
            type Value = KeyLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tier, or { tier, quota }")
            }

            fn visit_str<E: Error>(self, tier: &str) -> Result<KeyLine, E> {
                Ok(KeyLine::Tier(tier.to_owned()))
            }

            fn visit_u64<E: Error>(self, tier: u64) -> Result<KeyLine, E> {
                self.visit_str(&tier.to_string())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KeyLine, A::Error> {
                KeyEntry::deserialize(MapAccessDeserializer::new(map))
                    .map(|entry| KeyLine::Entry(Box::new(entry)))
            }
        }

        deserializer.deserialize_any(TierOrEntry)
    }
}

impl<'de> Deserialize<'de> for PricesEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldOrPrices;

        impl<'de> Visitor<'de> for FieldOrPrices {
            type Value = PricesEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field, or { field: units, other: units }")
            }

            fn visit_str<E: Error>(self, field: &str) -> Result<PricesEntry, E> {
                Ok(PricesEntry::One(field.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PricesEntry, A::Error> {
                Named::deserialize(MapAccessDeserializer::new(map)).map(PricesEntry::Each)
            }
        }

        deserializer.deserialize_any(FieldOrPrices)
    }
}

impl JsonSchema for PricesEntry {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "prices".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let price = json_schema!({ "type": ["integer", "string"], "minimum": 1 });
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": price }] })
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrHeader;

        impl<'de> Visitor<'de> for NumberOrHeader {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or { header, min, max, missing }, or { json, min, max, missing }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Cost, E> {
                Ok(Cost::Fixed(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Cost, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Cost, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Cost, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
                SaidCost::deserialize(MapAccessDeserializer::new(map)).map(|cost| Cost::Said(Box::new(cost)))
            }
        }

        deserializer.deserialize_any(NumberOrHeader)
    }
}

impl JsonSchema for Cost {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "cost".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let header = generator.subschema_for::<SaidCost>();
        json_schema!({ "anyOf": [{ "type": ["integer", "string"] }, header] })
    }
}
