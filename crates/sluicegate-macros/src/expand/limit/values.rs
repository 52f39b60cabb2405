//! Values of parameters that are one of a few words.
//!
//! The `FromStr` of the core's own options reads words and numbers, so an attribute, a
//! rules file and a command line accept the same text with the same errors.

use std::str::FromStr;
use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use sluicegate_core::{ConfigError, OnExceeded};
use syn::{Error, Lit, LitStr, Result};

use super::words::{nearest, quoted};

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
