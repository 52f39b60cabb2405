//! Texts that the application puts on the page: [`Notices`].
//!
//! They are for conditions that last until they are fixed, such as a wrong rules file. A single occurrence is an event.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The most notices at a time. An application has a handful of subjects.
const MOST: usize = 32;

/// The longest text that is kept, in bytes: about fifty lines of a file with carets below them.
const LONGEST: usize = 4_096;

/// The notices that are on the page until they are taken back, by subject.
#[derive(Default)]
pub(crate) struct Notices(Mutex<BTreeMap<String, Notice>>);

/// A text, and the time since which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) about: String,
    pub(super) since_us: u64,
    pub(super) text: String,
}

impl Notices {
    /// Puts a text, which replaces another one about the same subject. A text that is put again keeps its first time. If there are too
    /// many, the oldest makes room.
    pub(crate) fn put(&self, about: String, mut text: String, now_us: u64) {
        // Among any four places there is a boundary between characters.
        let end = (0..=LONGEST.min(text.len())).rev().find(|place| text.is_char_boundary(*place));
        text.truncate(end.unwrap_or_default());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since_us = all.get(&about).filter(|known| known.text == text).map_or(now_us, |it| it.since_us);
        all.insert(about.clone(), Notice { about, since_us, text });
        if all.len() > MOST {
            let oldest = all.values().min_by_key(|notice| notice.since_us).map(|it| it.about.clone());
            oldest.and_then(|oldest| all.remove(&oldest));
        }
    }

    pub(crate) fn take_back(&self, about: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(about);
    }

    /// All notices, by subject.
    pub(super) fn all(&self) -> Vec<Notice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_stands_since_it_was_put_first_and_the_oldest_makes_room() {
        let notices = Notices::default();
        let put = |about: &str, text: &str, now_us| notices.put(about.to_owned(), text.to_owned(), now_us);
        let since = || notices.all().iter().map(|notice| notice.since_us).collect::<Vec<_>>();
        put("rules", "line 3", 1);
        put("rules", "line 3", 2);
        assert_eq!(since(), [1]);
        put("rules", "line 4", 3);
        assert_eq!(since(), [3]);
        for number in 0..100_u64 {
            put(&format!("{number:03}"), "x", 10 + number);
        }
        assert_eq!((since().len(), since().iter().min()), (32, Some(&78)));
        notices.take_back("099");
        notices.take_back("099");
        assert_eq!(since().len(), 31);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let notices = Notices::default();
        notices.put("rules".to_owned(), "€".repeat(9_000), 1);
        assert_eq!(notices.all()[0].text, "€".repeat(1_365));
    }
}
