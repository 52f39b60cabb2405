//! The words of a rules file. Each field is a word, and its documentation is what the JSON Schema says of it.
//!
//! Scalars are read as texts and parsed later, by the same code as elsewhere, so that all mistakes in values are reported
//! at once, each at its place.

/// An entry of a file, with its name in the schema, and its words: `?` is behind one that may be left out, `[]` behind one that is empty then. A
/// text behind `=` is the function with the schema of a value.
macro_rules! entry {
    (
        $(#[$of_entry:meta])* $entry:ident as $name:literal:
        $($(#[$of_word:meta])* $word:ident
            $(?: $optional:ty)? $([]: $several:ty)? $(: $value:ty)? $(= $schema:literal)?,)*
    ) => {
        $(#[$of_entry])*
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(rename = $name)]
        pub(crate) struct $entry {
            $(
                $(#[$of_word])*
                $(#[schemars(schema_with = $schema)])?
                $(#[serde(default, deserialize_with = "crate::schema::shapes::said")] pub $word: Option<$optional>,)?
                $(#[serde(default)] pub $word: $several,)?
                $(pub $word: $value,)?
            )*
        }
    };
}

/// The schema of a shape, which is written wherever the shape stands.
macro_rules! schema {
    ($shape:ty as $name:literal, |$generator:pat_param| $schema:expr) => {
        impl schemars::JsonSchema for $shape {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}

mod file;
mod sections;
mod shapes;
mod words;

pub(crate) use self::file::{
    Condition, File, PolicyEntry, RuleEntry, SettleEntry, Suspend, TiersEntry, Tighten,
};
pub(crate) use self::sections::{
    ApiKeysEntry, AtOnceEntry, Clients, InFlightEntry, Jwt, PathsEntry, RoomEntry, StoreEntry,
};
pub(crate) use self::shapes::{
    Cost, DescriptorEntries, FieldValues, KeyEntry, KeyLine, Named, OneOrMany, OptionalWord, PricesEntry,
    SaidCost, TextWanted, written,
};

/// The JSON Schema of rules files, for editors, as text with a final line end: draft 7, which all of them support.
///
/// Each word has its documentation, its values if they are a list, and a pattern if a text contains a number. A variable,
/// `${NAME}`, is accepted in place of any value. A schema refuses unknown words and values of another shape; only
/// [`RulesFile::parse`](crate::RulesFile::parse) sees whether a policy is there, a quota is exact, and a cost fits.
///
/// Write it beside the rules, by `sluicegate schema > sluicegate-rules.schema.json`, and name it in the first line of the file:
///
/// ```yaml
/// # yaml-language-server: $schema=./sluicegate-rules.schema.json
/// version: 1
/// ```
///
/// ```
/// use serde_json::Value;
///
/// let schema: Value = serde_json::from_str(&sluicegate_rules::json_schema())?;
/// assert_eq!(schema["title"], "Sluicegate rules");
/// let policy = &schema["definitions"]["policy"];
/// assert_eq!(policy["required"], serde_json::json!(["quota"]));
/// assert_eq!(policy["additionalProperties"], false);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn json_schema() -> String {
    let settings = schemars::generate::SchemaSettings::draft07();
    let mut schema = settings.into_generator().into_root_schema_for::<File>();
    schema.insert("title".to_owned(), "Sluicegate rules".into());
    let mut schema = schema.to_value();
    words::widen(&mut schema);
    let mut text = format!("{schema:#}");
    text.push('\n');
    text
}
