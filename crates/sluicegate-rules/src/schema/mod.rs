//! The words of a rules file. Each field is a word, and its documentation is what the JSON Schema says of it.
//!
//! Scalars are read as texts and understood later, by the code that reads them everywhere else: so all mistakes in values are
//! told at once, and each in its place.

mod file;
mod sections;
mod shapes;
mod words;

pub(crate) use self::file::{Condition, File, PolicyEntry, RuleEntry, Suspend, TiersEntry};
pub(crate) use self::sections::{ApiKeysEntry, Clients, InFlightEntry, Jwt, StoreEntry};
pub(crate) use self::shapes::{Cost, Fields, HeaderCost, Named, OneOrMany};

/// The JSON Schema of rules files, for editors: `# yaml-language-server: $schema=./sluicegate-rules.schema.json`.
///
/// ```
/// assert!(sluicegate_rules::json_schema().contains("on_outage"));
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
