//! The words that an attribute knows, and suggestions for unknown words.
//!
//! A word is near with a Jaro-Winkler similarity above 0.75: `qouta` is near to `quota`, and `x` is not near to
//! any word.

/// The word that is nearest to `wrong`, if one is near.
pub(super) fn nearest<'a>(wrong: &str, words: &[&'a str]) -> Option<&'a str> {
    let near = |word: &&str| strsim::jaro_winkler(&wrong.to_lowercase().replace('-', "_"), word);
    let best = words.iter().copied().max_by(|one, other| near(one).total_cmp(&near(other)))?;
    // Below this, words do not look alike.
    (near(&best) > 0.75).then_some(best)
}

/// `"a", "b" or "c"`
pub(super) fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match &*words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        let words = ["name", "algorithm", "on_exceeded", "on_outage", "on_missing_key"];
        for (wrong, right) in [
            ("names", "name"),
            ("algoritm", "algorithm"),
            ("on-exceeded", "on_exceeded"),
            ("onExceeded", "on_exceeded"),
            ("on_missing", "on_missing_key"),
        ] {
            assert_eq!(nearest(wrong, &words), Some(right), "{wrong}");
        }
        assert_eq!(nearest("zzz", &words), None);
    }

    #[test]
    fn choices_read_as_a_sentence() {
        assert_eq!(quoted(&["local", "allow", "deny"]), r#""local", "allow" or "deny""#);
    }
}
