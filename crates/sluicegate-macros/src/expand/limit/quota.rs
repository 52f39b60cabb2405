//! The sources of a quota.
//!
//! | written | is checked |
//! |---|---|
//! | `"5/min"` | while compiling |
//! | `quota = LOGIN` | when the limit is made |
//! | `quota = env("LOGIN_LIMIT", "5/min")` | the default while compiling, the variable when the limit is made |

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, Lit, LitStr, Result, Token};

/// A quota in an attribute.
pub(super) enum QuotaSource {
    /// `"5/min"`, which the compiler checks.
    Text(LitStr),
    /// `quota = LOGIN`, checked when the limit is made.
    Constant(Expr),
    /// `quota = env("LOGIN_LIMIT", "5/min")`: the variable is read when the limit is made.
    Environment { variable: LitStr, default: Option<LitStr> },
}

impl QuotaSource {
    /// The part that the compiler can check.
    pub(super) fn text(&self) -> Option<&LitStr> {
        match self {
            Self::Text(text) => Some(text),
            Self::Constant(_) => None,
            Self::Environment { default, .. } => default.as_ref(),
        }
    }

    pub(super) fn variable(&self) -> Option<&LitStr> {
        match self {
            Self::Environment { variable, .. } => Some(variable),
            Self::Text(_) | Self::Constant(_) => None,
        }
    }

    pub(super) fn span(&self) -> Span {
        match self {
            Self::Text(text) => text.span(),
            Self::Constant(value) => value.span(),
            Self::Environment { variable, .. } => variable.span(),
        }
    }

    /// The expression that makes the quota from the run-time `source`.
    pub(super) fn expression(&self, source: &TokenStream) -> TokenStream {
        match self {
            Self::Text(text) => text.to_token_stream(),
            Self::Constant(value) => value.to_token_stream(),
            Self::Environment { variable, default } => {
                let default = match default {
                    Some(text) => quote_spanned!(Span::mixed_site()=> ::core::option::Option::Some(#text)),
                    None => quote_spanned!(Span::mixed_site()=> ::core::option::Option::None),
                };
                quote_spanned!(Span::mixed_site()=> #source.quota(#variable, #default)?)
            }
        }
    }
}

impl Parse for QuotaSource {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        match input.parse()? {
            Expr::Lit(literal) => match literal.lit {
                Lit::Str(text) => Ok(Self::Text(text)),
                other => Err(Error::new(other.span(), "a quota is a string: write it as \"5/min\"")),
            },
            Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("env")) => {
                environment(&call.args, call.func.span())
            }
            value => Ok(Self::Constant(value)),
        }
    }
}

fn environment(arguments: &Punctuated<Expr, Token![,]>, call: Span) -> Result<QuotaSource> {
    let mut texts = Vec::new();
    for argument in arguments {
        match argument {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => texts.push(text.clone()),
                other => return Err(Error::new(other.span(), USAGE)),
            },
            other => return Err(Error::new_spanned(other, USAGE)),
        }
    }
    match &*texts {
        [variable, ..] if variable.value().is_empty() || variable.value().contains(['=', '\0']) => {
            Err(Error::new(
                variable.span(),
                format!("{:?} cannot be the name of a variable: {USAGE}", variable.value()),
            ))
        }
        [variable] => Ok(QuotaSource::Environment { variable: variable.clone(), default: None }),
        [variable, default] => {
            Ok(QuotaSource::Environment { variable: variable.clone(), default: Some(default.clone()) })
        }
        _ => Err(Error::new(call, USAGE)),
    }
}

const USAGE: &str = "a quota from the environment is `quota = env(\"LOGIN_LIMIT\")`, or `quota = env(\"LOGIN_LIMIT\", \"5/min\")` with a default";
