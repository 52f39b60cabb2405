//! The entries of a descriptor, as a condition names them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Named, TextWanted};
use crate::at::At;

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

impl JsonSchema for DescriptorEntries {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "descriptor_entries".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let entries = generator.subschema_for::<Named<TextWanted>>();
        json_schema!({ "anyOf": [entries, { "type": "array", "items": entries, "minItems": 1 }] })
    }
}
