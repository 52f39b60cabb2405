//! Checks a limit by building its policy.
//!
//! The core that builds policies at run time builds this one while compiling, so there is one set
//! of rules and one set of messages. Its errors carry the position of a mistake in the text; this module turns the position
//! into a span.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{Algorithm, Policy, Quota};
use syn::{Error, Expr, Lit, LitStr, Result};

use super::args::{Args, MissingKeyWord, at, on_missing_key, read};
use super::quota::QuotaSource;
use crate::expand::Mistakes;
use crate::expand::handler::Handler;

/// A limit that passed all checks.
pub(super) struct CheckedLimit {
    /// The given name. Without one, the limit is named after the path of the handler, which only the compiler knows.
    pub(super) name: Option<LitStr>,
    /// The span at which errors about the name are reported.
    pub(super) name_span: Span,
    pub(super) algorithm: LitStr,
    pub(super) quotas: Vec<QuotaSource>,
    /// The calls of the policy's builder.
    pub(super) options: Vec<TokenStream>,
    pub(super) key: Option<Expr>,
    pub(super) cost: Option<Expr>,
    pub(super) only_if: Option<Expr>,
    pub(super) refund_if: Option<Expr>,
    pub(super) on_missing_key: Option<MissingKeyWord>,
}

/// The default algorithm, as in the README; it supports every quota.
const ALGORITHM: &str = "gcra";

/// Checks one attribute of a function; all mistakes are reported together.
pub(super) fn limit(args: Args, handler: &Handler) -> Result<CheckedLimit> {
    let mut mistakes = Mistakes::default();
    if let Some(name) = &args.name {
        mistakes.note(check_name(name));
    }
    let algorithm = args.algorithm.unwrap_or_else(|| LitStr::new(ALGORITHM, Span::call_site()));
    let texts: Vec<&LitStr> = args.quotas.iter().filter_map(QuotaSource::text).collect();
    let policy = mistakes.note(policy(&algorithm, &texts)).flatten();
    if let Some(cost) = &args.cost {
        mistakes.note(cost_of(cost, policy.as_ref()));
    }
    if let Some(key) = &args.key {
        mistakes.note(check_key(key, handler));
    }
    let calls = args.options.iter().map(|(option, value)| option.call(value.as_ref()));
    let options = calls.filter_map(|call| mistakes.note(call)).collect();
    let limit = CheckedLimit {
        name_span: args.name.as_ref().map_or_else(|| handler.signature.ident.span(), LitStr::span),
        name: args.name,
        algorithm,
        quotas: args.quotas,
        options,
        key: args.key,
        cost: args.cost,
        only_if: args.only_if,
        refund_if: args.refund_if,
        on_missing_key: args.on_missing_key.and_then(|lit| mistakes.note(on_missing_key(&lit))),
    };
    mistakes.none_or(limit)
}

/// Explains keys that are closures, and those that are arguments of the handler, or types of these.
fn check_key(key: &Expr, handler: &Handler) -> Result<()> {
    let problem = match key {
        Expr::Closure(_) => {
            "a closure alone is no key: write `key = key_fn(|request| ..)`, which takes one that returns an `Option`".to_owned()
        }
        Expr::Path(path) => {
            let Some(name) = path.path.get_ident() else { return Ok(()) };
            let Some(argument) = handler.arguments().find(|argument| says(argument.to_token_stream(), name)) else {
                return Ok(());
            };
            if says(argument.pat.to_token_stream(), name) {
                let (pattern, ty) = (shown(&argument.pat), shown(&argument.ty));
                format!("`{name}` is an argument, and the key is found before there are arguments: write `key = key_from_extractor((), |{pattern}: {ty}| {name})`, or, for a value that authentication has put into the extensions, `key = key_from_extension(|{name}: &..| ..)`")
            } else {
                format!("`{name}` is a type, and no key: write `key = key_from_extension(|value: &{name}| value.id)`, with the field that says who it is")
            }
        }
        _ => return Ok(()),
    };
    Err(Error::new_spanned(key, problem))
}

fn shown(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string().replace(' ', "")
}

/// Whether a word is among the tokens.
fn says(tokens: TokenStream, word: &syn::Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(other) => other == *word,
        TokenTree::Group(group) => says(group.stream(), word),
        _ => false,
    })
}

fn check_name(given: &LitStr) -> Result<()> {
    let policy = Policy::gcra(given.value(), Quota::per_second(1)).build();
    policy.map(drop).map_err(|error| at(given, &error))
}

/// Builds a policy from the quotas whose text is known, under any name, and reports mistakes at their positions.
///
/// `None` if a quota is only known at run time: from a constant or the environment.
fn policy(algorithm: &LitStr, quotas: &[&LitStr]) -> Result<Option<Policy>> {
    let algorithm: Algorithm = read(algorithm)?;
    let Some((first, others)) = quotas.split_first() else {
        return Ok(None);
    };
    // The name does not matter here, and messages do not show it.
    let builder = |quota: &LitStr| Policy::builder("limit", algorithm, quota.value());
    let mut mistakes = Mistakes::default();
    for quota in quotas {
        mistakes.note(builder(quota).build().map_err(|error| at(quota, &error)));
    }
    mistakes.none_or(())?;
    let together = others.iter().fold(builder(first), |policy, quota| policy.and(quota.value()));
    together.build().map(Some).map_err(|error| {
        let quota = error.quota().and_then(|index| quotas.get(index)).unwrap_or(first);
        // The core's advice refers to code; here the advice is a second attribute.
        let problem = match error.kind() {
            ConfigErrorKind::SameLabel => {
                "is for the same period as another quota of this limit: keep one of them, or put it"
            }
            ConfigErrorKind::QueueOfSeveral => {
                "is a second quota of a queue, and a queue spaces its output in one way: put it"
            }
            _ => return at(quota, &error),
        };
        let advice = "into a `#[rate_limited]` of its own with another `name`";
        Error::new(quota.span(), format!("{:?} {problem} {advice}", quota.value()))
    })
}

/// Checks a numeric cost against the quotas whose text is known; other costs are checked when the limit is made.
fn cost_of(cost: &Expr, policy: Option<&Policy>) -> Result<()> {
    let number = match cost {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse::<u64>()?,
            other => return Err(Error::new(other.span(), COST)),
        },
        Expr::Unary(negative) => return Err(Error::new_spanned(negative, COST)),
        _ => return Ok(()),
    };
    if number == 0 {
        return Err(Error::new_spanned(cost, "a cost of 0 would let every request pass: use at least 1"));
    }
    let quotas = policy.into_iter().flat_map(Policy::quotas);
    match quotas.into_iter().find(|quota| quota.rule().capacity() < number) {
        Some(quota) => Err(Error::new_spanned(
            cost,
            format!(
                "cost {number} is above burst {} of {}: no request would ever pass; lower the cost, or raise the limit or its burst",
                quota.rule().capacity(),
                quota.quota()
            ),
        )),
        None => Ok(()),
    }
}

const COST: &str = "a cost is a whole number of units, at least 1, such as `cost = 2`";
