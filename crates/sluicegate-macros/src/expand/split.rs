//! Arguments under a `#[cfg]`: the attribute runs before the compiler removes arguments that do not
//! apply.
//!
//! So it cannot know the number of arguments. It writes both handlers, each under its
//! condition, and lets the compiler keep one: n conditional arguments need n + 1 rounds, each
//! of which knows one more.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, FnArg, Path};

use super::handler::Handler;

/// The handler with its first conditional argument and the handler without it, each under its condition and with the
/// attribute again. The compiler keeps one of the two, whose next conditional argument is then the first.
pub(super) fn split(arguments: &TokenStream, handler: &Handler, crate_path: &Path) -> Option<TokenStream> {
    let index = handler.signature.inputs.iter().position(
        |input| matches!(input, FnArg::Typed(argument) if argument.attrs.iter().any(is_condition)),
    )?;
    let (mut with, mut without) = (handler.signature.clone(), handler.signature.clone());
    let mut conditions = Vec::new();
    if let Some(FnArg::Typed(argument)) = with.inputs.get_mut(index) {
        let (found, others) = argument.attrs.drain(..).partition(is_condition);
        (conditions, argument.attrs) = (found, others);
    }
    without.inputs = without
        .inputs
        .into_iter()
        .enumerate()
        .filter_map(|(at, input)| (at != index).then_some(input))
        .collect();
    let conditions = conditions.iter().filter_map(predicate);
    let all = quote!(all(#(#conditions),*));
    let Handler { attributes, limits, visibility, body, .. } = handler;
    let rest = quote!(#[#crate_path::rate_limited(#arguments)] #(#limits)* #(#attributes)* #visibility);
    Some(quote! {
        #[cfg(#all)]
        #rest #with #body

        #[cfg(not(#all))]
        #rest #without #body
    })
}

fn is_condition(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}

/// The condition of a `#[cfg]`.
fn predicate(attribute: &Attribute) -> Option<TokenStream> {
    attribute.meta.require_list().ok().map(|list| list.tokens.to_token_stream())
}
