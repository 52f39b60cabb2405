//! The arguments in the parentheses of an attribute, as they are written.
//!
//! Only the form is checked here: an unknown word gets the nearest known one as advice,
//! a repeated word is named. Values keep their spans, so that each later mistake is
//! underlined at its position.

use std::str::FromStr;
use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use sluicegate_core::{ConfigError, OnExceeded};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Lit, LitStr, Path, Result, Token};

use super::options::{GivenOption, OPTIONS, OptionForm, PolicyOption};
use super::quota::QuotaSource;

/// The parameters beside the [options](OPTIONS) of the policy.
const PARAMETERS: [&str; 10] = [
    "quota",
    "name",
    "algorithm",
    "key",
    "cost",
    "only_if",
    "refund_if",
    "on_missing_key",
    "fallback",
    "crate",
];

/// One attribute's arguments.
///
/// The arguments are unchecked; `check` finds out whether the values can be used.
#[derive(Default)]
pub(super) struct Args {
    pub(super) quotas: Vec<QuotaSource>,
    pub(super) name: Option<LitStr>,
    pub(super) algorithm: Option<LitStr>,
    pub(super) key: Option<Expr>,
    pub(super) cost: Option<Expr>,
    pub(super) only_if: Option<Expr>,
    pub(super) refund_if: Option<Expr>,
    pub(super) on_missing_key: Option<Lit>,
    pub(super) fallback: Option<Expr>,
    pub(super) options: Vec<GivenOption>,
    pub(super) crate_path: Option<Path>,
}

impl Parse for Args {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut args = Self::default();
        while !input.is_empty() {
            args.one(input)?;
            if input.is_empty() {
                break;
            }
            if !input.peek(Token![,]) {
                return Err(input.error("a comma is missing between two parameters"));
            }
            input.parse::<Token![,]>()?;
        }
        if args.quotas.is_empty() {
            return Err(Error::new(
                Span::call_site(),
                "the quota is missing: write `#[rate_limited(\"5/min\")]`",
            ));
        }
        Ok(args)
    }
}

impl Args {
    fn one(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(LitStr) {
            self.quotas.push(QuotaSource::Text(input.parse()?));
            return Ok(());
        }
        if input.peek(Lit) {
            return Err(input.error("a quota is a string: write it as \"5/min\""));
        }
        if !input.peek(Ident::peek_any) {
            return Err(
                input.error("neither a quota, such as \"5/min\", nor a parameter, such as `cost = 2`")
            );
        }
        let word = input.call(Ident::parse_any)?;
        match &*word.to_string() {
            "quota" => {
                self.quotas.push(value(&word, input, "LOGIN")?);
                Ok(())
            }
            "name" => set(&mut self.name, &word, text(&word, input, "\"login\"")?),
            "algorithm" => set(&mut self.algorithm, &word, text(&word, input, "\"sliding-counter\"")?),
            "key" => set(&mut self.key, &word, value(&word, input, "HeaderKey::new(\"x-api-key\")")?),
            "cost" => set(&mut self.cost, &word, value(&word, input, "2")?),
            "only_if" => set(&mut self.only_if, &word, value(&word, input, "|request| ..")?),
            "refund_if" => set(&mut self.refund_if, &word, value(&word, input, "|head| ..")?),
            "on_missing_key" => set(&mut self.on_missing_key, &word, value(&word, input, "401")?),
            "fallback" => set(&mut self.fallback, &word, value(&word, input, "busy")?),
            "crate" => {
                equals(&word, input, "my_crate::sluicegate")?;
                let path = input.call(Path::parse_mod_style).map_err(|error| {
                    Error::new(error.span(), "`crate` is a path: write `crate = my_crate::sluicegate`")
                })?;
                set(&mut self.crate_path, &word, path)
            }
            other => match OPTIONS.iter().find(|option| option.word == other) {
                Some(option) => self.option(option, &word, input),
                None => Err(Error::new(word.span(), unknown(other))),
            },
        }
    }

    fn option(&mut self, option: &'static PolicyOption, word: &Ident, input: ParseStream<'_>) -> Result<()> {
        let value = match option.form {
            OptionForm::Flag => flag(word, input).map(|()| None)?,
            OptionForm::Text { example, .. } => Some(text(word, input, example)?),
        };
        if self.options.iter().any(|(given, _)| given.word == option.word) {
            return Err(twice(word));
        }
        self.options.push((option, value));
        Ok(())
    }
}

/// The arguments of an attribute: `#[rate_limited]` alone has no parentheses, and no quota.
///
/// # Errors
/// For parentheses that cannot be read, at the token that is wrong.
pub(super) fn of(attribute: &syn::Attribute) -> Result<Args> {
    match &attribute.meta {
        syn::Meta::List(list) => list.parse_args(),
        meta => Err(Error::new_spanned(meta, "the quota is missing: write `#[rate_limited(\"5/min\")]`")),
    }
}

fn set<T>(slot: &mut Option<T>, word: &Ident, value: T) -> Result<()> {
    if slot.is_some() {
        return Err(twice(word));
    }
    *slot = Some(value);
    Ok(())
}

fn twice(word: &Ident) -> Error {
    Error::new(word.span(), format!("`{word}` is given twice: keep one of them"))
}

fn equals(word: &Ident, input: ParseStream<'_>, example: &str) -> Result<()> {
    if !input.peek(Token![=]) {
        return Err(Error::new(word.span(), format!("`{word}` needs a value: write `{word} = {example}`")));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(word.span(), format!("`{word}` needs a value: write `{word} = {example}`")));
    }
    Ok(())
}

fn value<T: Parse>(word: &Ident, input: ParseStream<'_>, example: &str) -> Result<T> {
    equals(word, input, example)?;
    input.parse()
}

fn text(word: &Ident, input: ParseStream<'_>, example: &str) -> Result<LitStr> {
    equals(word, input, example)?;
    input.parse().map_err(|error| {
        Error::new(error.span(), format!("`{word}` is a string: write `{word} = {example}`"))
    })
}

fn flag(word: &Ident, input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    Err(input.error(format!("`{word}` takes no value: write it alone, or leave it out")))
}

fn unknown(word: &str) -> String {
    let all: Vec<&str> = PARAMETERS.into_iter().chain(OPTIONS.iter().map(|option| option.word)).collect();
    let listed: Vec<_> = all.iter().map(|parameter| format!("`{parameter}`")).collect();
    let known = format!("besides quotas, there are {}", listed.join(", "));
    match nearest(word, &all) {
        Some(meant) => format!("there is no parameter `{word}`: did you mean `{meant}`? ({known})"),
        None => format!("there is no parameter `{word}`: {known}"),
    }
}

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

/// Says how to treat a request without a key.
#[derive(Clone, Copy)]
pub(super) enum MissingKeyWord {
    Share,
    Skip,
    Reject(u16),
}

/// The longest wait: a waiting request holds its connection and its memory, and no client waits for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// The value that the core reads from this text.
pub(super) fn read<T: FromStr<Err = ConfigError>>(text: &LitStr) -> Result<T> {
    text.value().parse().map_err(|error| at(text, &error))
}

/// The expression that reads this text at run time, as the core reads it now.
pub(super) fn parsed<T: FromStr<Err = ConfigError>>(text: &LitStr) -> Result<TokenStream> {
    read::<T>(text)?;
    let text = text.value();
    Ok(quote!(#text.parse()?))
}

/// The core's error about this text.
pub(super) fn at(text: &LitStr, error: &ConfigError) -> Error {
    Error::new(text.span(), error.problem())
}

/// Reads `"deny"`, or the longest wait.
pub(super) fn on_exceeded(text: &LitStr) -> Result<TokenStream> {
    match read(text)? {
        OnExceeded::Wait { longest } if longest > LONGEST_WAIT => Err(Error::new(
            text.span(),
            format!(
                "{:?} keeps a request waiting for more than an hour: use at most \"wait 1h\", or \"deny\"",
                text.value()
            ),
        )),
        _ => parsed::<OnExceeded>(text),
    }
}

/// Reads a word or a status for a request without a key.
pub(super) fn on_missing_key(value: &Lit) -> Result<MissingKeyWord> {
    const STATUS: &str = ", or a status from 400 to 599, such as 401";
    let what = "what happens to a request without a key";
    let words = ["share", "skip"];
    match value {
        Lit::Str(text) => match &*text.value() {
            "share" => Ok(MissingKeyWord::Share),
            "skip" => Ok(MissingKeyWord::Skip),
            other => {
                let meant = nearest(other, &words).map(|word| format!("did you mean {word:?}? "));
                let (meant, words) = (meant.unwrap_or_default(), quoted(&words));
                let problem = format!("{other:?} does not say {what}: {meant}use {words}{STATUS}");
                Err(Error::new(text.span(), problem))
            }
        },
        Lit::Int(status) => match status.base10_parse() {
            Ok(code) if (400..600).contains(&code) => Ok(MissingKeyWord::Reject(code)),
            _ => Err(Error::new(
                status.span(),
                format!(
                    "{status} is not a status to refuse a request with: use 400 to 599, such as 401; \"share\" or \"skip\""
                ),
            )),
        },
        other => {
            Err(Error::new(other.span(), format!("this does not say {what}: use {}{STATUS}", quoted(&words))))
        }
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
