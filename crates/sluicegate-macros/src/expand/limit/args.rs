//! The arguments in the parentheses of an attribute, as they are written.
//!
//! Only the form is checked here: an unknown word gets the nearest known one as advice,
//! a repeated word is named. Values keep their spans, so that each later mistake is
//! underlined in its place.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Lit, LitStr, Path, Result, Token};

use super::quota::QuotaSource;
use super::words::nearest;

const PARAMETERS: [&str; 15] = [
    "quota",
    "name",
    "algorithm",
    "key",
    "cost",
    "only_if",
    "refund_if",
    "on_exceeded",
    "on_missing_key",
    "on_outage",
    "fallback",
    "shadow",
    "hidden",
    "count_rejected",
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
    pub(super) on_exceeded: Option<LitStr>,
    pub(super) on_missing_key: Option<Lit>,
    pub(super) on_outage: Option<LitStr>,
    pub(super) fallback: Option<Expr>,
    pub(super) shadow: Option<()>,
    pub(super) hidden: Option<()>,
    pub(super) count_rejected: Option<()>,
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
            "on_exceeded" => set(&mut self.on_exceeded, &word, text(&word, input, "\"wait 5s\"")?),
            "on_missing_key" => set(&mut self.on_missing_key, &word, value(&word, input, "401")?),
            "on_outage" => set(&mut self.on_outage, &word, text(&word, input, "\"allow\"")?),
            "fallback" => set(&mut self.fallback, &word, value(&word, input, "busy")?),
            "shadow" => set(&mut self.shadow, &word, flag(&word, input)?),
            "hidden" => set(&mut self.hidden, &word, flag(&word, input)?),
            "count_rejected" => set(&mut self.count_rejected, &word, flag(&word, input)?),
            "crate" => {
                equals(&word, input, "my_crate::sluicegate")?;
                let path = input.call(Path::parse_mod_style).map_err(|error| {
                    Error::new(error.span(), "`crate` is a path: write `crate = my_crate::sluicegate`")
                })?;
                set(&mut self.crate_path, &word, path)
            }
            other => Err(Error::new(word.span(), unknown(other))),
        }
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
        return Err(Error::new(word.span(), format!("`{word}` is given twice: keep one of them")));
    }
    *slot = Some(value);
    Ok(())
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
    let all = PARAMETERS.map(|parameter| format!("`{parameter}`")).join(", ");
    let known = format!("besides quotas, there are {all}");
    match nearest(word, &PARAMETERS) {
        Some(meant) => format!("there is no parameter `{word}`: did you mean `{meant}`? ({known})"),
        None => format!("there is no parameter `{word}`: {known}"),
    }
}
