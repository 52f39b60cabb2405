//! The importance of the requests of a rule: the word `class`.

use sluicegate_in_flight::Class;
use sluicegate_tower::key::RequestView;

use super::by::AttributeSource;
use super::keys::{Keys, call};
use super::{is_unknown, wrong};
use crate::at::At;
use crate::error::Problems;
use crate::schema::OneOrMany;

/// The class of the requests of a rule.
pub(super) struct Classes {
    /// The places that a class is read from; the first with a class counts.
    by: Vec<AttributeSource>,
    /// The class of a request without one.
    otherwise: Class,
}

impl Classes {
    /// The classes of these words; all mistakes in them are reported.
    pub(super) fn of(given: &At<OneOrMany>, keys: &Keys, problems: &mut Problems<'_>) -> Self {
        let mut classes = Self { by: Vec::new(), otherwise: Class::default() };
        let words = given.all();
        if words.is_empty() {
            problems.error(given.place, "an empty list says nothing: leave the word out");
        }
        for (place, word) in words.iter().enumerate() {
            if call(&word.value).is_some() {
                classes.by.extend(AttributeSource::of_classes(word, keys, problems));
                continue;
            }
            if place + 1 < words.len() {
                let text = format!(
                    "every request is of class {:?}, so the words behind it say nothing: put it last",
                    word.value
                );
                problems.error(word.place, text);
            }
            if !is_unknown(word, "the default", problems) {
                match word.value.parse() {
                    Ok(class) => classes.otherwise = class,
                    Err(error) => wrong(word, &error, problems),
                }
            }
        }
        classes
    }

    /// The class of a request.
    pub(super) fn class(&self, request: RequestView<'_>) -> Class {
        let said = |by: &AttributeSource| by.name(request)?.trim().parse().ok();
        self.by.iter().find_map(said).unwrap_or(self.otherwise)
    }
}
