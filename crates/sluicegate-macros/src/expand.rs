//! What an attribute becomes.
//!
//! `#[rate_limited("5/min")] pub async fn login(State(app): State<App>, Json(body): Json<Login>) -> R { .. }` is, with
//! `p` for `::sluicegate::__private`:
//!
//! ```text
//! pub async fn login(_: p::Skip, limited: p::Limited<__rate_limited_login>) -> p::Response { limited.into_response() }
//!
//! pub struct __rate_limited_login(..);
//!
//! impl<S, M> p::Limits<S, M> for __rate_limited_login
//! where State<App>: p::FromRequestParts<S>, Json<Login>: p::FromRequest<S, M>
//! {
//!     fn attribute() -> &'static p::Attribute { /* a static with the policy, the key and the cost */ }
//!     fn call(request: p::Request, state: S) -> p::Answer {
//!         async fn login(State(app): State<App>, Json(body): Json<Login>) -> R { .. }
//!         p::run::<(M, State<App>, Json<Login>), _, _>(login, request, state)
//!     }
//! }
//! ```
//!
//! `Limited` is an extractor that puts `call` behind the same layer as `.rate_limit(..)` does and keeps its response.
//! So extractors run behind the limit, as on a route, and axum infers the state as for any handler. The function keeps
//! its number of arguments, because `#[axum::debug_handler]` calls it with that many.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use sluicegate_core::OnOutage;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, GenericParam, Ident, Path, Result, ReturnType, Type, parse_quote};

use crate::args::{self, Args};
use crate::check::{self, Limit, Mistakes};
use crate::handler::Handler;
use crate::values::MissingKey;

/// The whole way from the attribute to the items that it becomes; mistakes become compile errors.
pub(crate) fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let handler: Handler = match syn::parse2(item.clone()) {
        Ok(handler) => handler,
        Err(error) => return with(&error, item),
    };
    match limits(arguments, &handler) {
        Ok((limits, crate_path)) => expand(&handler, &limits, &crate_path),
        // The function stays, so that its uses are not reported as well.
        Err(error) => with(&error, handler),
    }
}

fn with(error: &Error, item: impl ToTokens) -> TokenStream {
    let error = error.to_compile_error();
    quote!(#error #item)
}

fn limits(arguments: TokenStream, handler: &Handler) -> Result<(Vec<Limit>, Path)> {
    let mut mistakes = Mistakes::default();
    mistakes.note(handler.check());
    let mut crate_path = None;
    let all = [syn::parse2(arguments)].into_iter().chain(handler.limits.iter().map(args::of));
    let limits: Vec<Limit> = all
        .filter_map(|args: Result<Args>| {
            let mut args = mistakes.note(args)?;
            crate_path = crate_path.take().or_else(|| args.crate_path.take());
            mistakes.note(check::limit(args, &handler.signature.ident))
        })
        .collect();
    mistakes.note(check::together(&limits));
    mistakes.none_or((limits, crate_path.unwrap_or_else(|| parse_quote!(::sluicegate))))
}

fn expand(handler: &Handler, limits: &[Limit], crate_path: &Path) -> TokenStream {
    let private = quote!(#crate_path::__private);
    let Handler { visibility, signature, body, .. } = handler;
    let name = &signature.ident;
    let marker = format_ident!("__rate_limited_{}", name, span = Span::mixed_site());
    let (conditions, shown, inner) = sort(&handler.attributes);

    let types: Vec<&Type> = handler.arguments().map(|argument| &*argument.ty).collect();
    let skips = types.iter().skip(1).map(|_| quote!(_: #private::Skip,));
    let (state, via) = (Ident::new("__S", Span::mixed_site()), Ident::new("__M", Span::mixed_site()));

    let generics = &signature.generics;
    let (generics_of_function, arguments_of_type, conditions_of_function) = generics.split_for_impl();
    let parameters = generics.params.iter();
    let parameter_names: Vec<&Ident> = generics.params.iter().filter_map(type_parameter).collect();
    let bare = bare_parameters(generics);
    let turbofish = arguments_of_type.as_turbofish();
    let own_conditions = generics.where_clause.iter().flat_map(|clause| &clause.predicates);

    let (via_parameter, via_argument) = match types.is_empty() {
        true => (None, quote!(())),
        false => (Some(quote!(, #via)), quote!(#via)),
    };
    let extracted = types.iter().enumerate().map(|(index, ty)| {
        if index + 1 == types.len() {
            quote!(#ty: #private::FromRequest<#state, #via> + ::core::marker::Send,)
        } else {
            quote!(#ty: #private::FromRequestParts<#state> + ::core::marker::Send,)
        }
    });
    let made = limits.iter().map(|limit| limit_expression(limit, &private));
    let checks = checks(handler, &private, &turbofish);
    let static_name = Ident::new("__ATTRIBUTE", Span::mixed_site());

    quote_spanned! {Span::mixed_site()=>
        #(#conditions)*
        #(#shown)*
        #visibility async fn #name #generics_of_function (#(#skips)* __limited: #private::Limited<#marker #arguments_of_type>) -> #private::Response
        #conditions_of_function
        {
            __limited.into_response()
        }

        #(#conditions)*
        #[doc(hidden)]
        #visibility struct #marker #bare (::core::marker::PhantomData<fn() -> (#(#parameter_names,)*)>);

        #(#conditions)*
        #[doc(hidden)]
        impl<#(#parameters,)* #state #via_parameter> #private::Limits<#state, #via_argument> for #marker #arguments_of_type
        where
            #state: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static,
            #(#parameter_names: ::core::marker::Send + ::core::marker::Sync + 'static,)*
            #(#extracted)*
            #(#own_conditions,)*
        {
            fn attribute() -> &'static #private::Attribute {
                static #static_name: #private::Attribute = #private::Attribute::new(
                    ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                    |__store| ::core::result::Result::Ok(::std::vec![#(#made),*]),
                );
                &#static_name
            }

            fn call(__request: #private::Request, __state: #state) -> #private::Answer {
                #(#inner)*
                #signature #body
                #checks
                #private::run::<(#via_argument, #(#types,)*), _, _>(#name #turbofish, __request, __state)
            }
        }
    }
}

/// Code that never runs: it says what axum's trait for handlers would only say in riddles.
fn checks(handler: &Handler, private: &TokenStream, turbofish: &impl ToTokens) -> TokenStream {
    let name = &handler.signature.ident;
    let arguments = handler.arguments().map(|_| quote!(#private::any()));
    let future = quote_spanned!(name.span()=> #private::check_future(#name #turbofish(#(#arguments),*)));
    let response = match &handler.signature.output {
        // What is opaque has no name, and says for itself that it is a response.
        ReturnType::Type(_, ty) if !is_opaque(ty.to_token_stream()) => {
            Some(quote_spanned!(ty.span()=> #private::check_response::<#ty>();))
        }
        _ => None,
    };
    quote_spanned! {Span::mixed_site()=>
        let _ = || {
            #response
            #future
        };
    }
}

fn is_opaque(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "impl" || word == "Self",
        TokenTree::Group(group) => is_opaque(group.stream()),
        _ => false,
    })
}

/// Which attributes decide about all items, which are shown with the function, and which belong to the handler's code.
fn sort(attributes: &[Attribute]) -> (Vec<&Attribute>, Vec<&Attribute>, Vec<&Attribute>) {
    let (mut conditions, mut shown, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for attribute in attributes {
        let is = |names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
        if is(&["cfg"]) {
            conditions.push(attribute);
        } else if is(&["doc", "deprecated"]) {
            shown.push(attribute);
        } else {
            // What silences the function's own lints is for both of it.
            if is(&["allow", "warn", "deny", "forbid"]) {
                shown.push(attribute);
            }
            inner.push(attribute);
        }
    }
    (conditions, shown, inner)
}

fn type_parameter(parameter: &GenericParam) -> Option<&Ident> {
    match parameter {
        GenericParam::Type(ty) => Some(&ty.ident),
        _ => None,
    }
}

/// `<T, const N: usize>`: the parameters without their bounds.
fn bare_parameters(generics: &syn::Generics) -> TokenStream {
    let parameters = generics.params.iter().map(|parameter| match parameter {
        GenericParam::Type(ty) => ty.ident.to_token_stream(),
        other => other.to_token_stream(),
    });
    if generics.params.is_empty() { TokenStream::new() } else { quote!(<#(#parameters),*>) }
}

/// The limit as one would write it by hand; `__store` is the closure's argument.
fn limit_expression(limit: &Limit, private: &TokenStream) -> TokenStream {
    let Limit { name, algorithm, quotas, .. } = limit;
    let (first, others) = (&quotas[0], &quotas[1..]);
    let wait = limit.wait.map(|longest| {
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        quote!(.wait_up_to(::core::time::Duration::from_micros(#micros)))
    });
    let on_outage = limit.on_outage.map(|action| {
        let action = match action {
            OnOutage::Allow => quote!(Allow),
            OnOutage::Deny => quote!(Deny),
            _ => quote!(Local),
        };
        quote!(.on_outage(#private::OnOutage::#action))
    });
    let shadow = limit.is_shadow.then(|| quote!(.shadow()));
    let hidden = limit.is_hidden.then(|| quote!(.hidden()));
    let cost = limit.cost.as_ref().map(|cost| match cost {
        Expr::Closure(closure) => quote!(.cost_fn(#closure)),
        number => quote!(.cost(#number)?),
    });
    let only_if = limit.only_if.as_ref().map(|applies| quote!(.only_if(#applies)));
    let refund_if = limit.refund_if.as_ref().map(|refund| quote!(.refund_if(#refund)));
    let on_missing_key = limit.on_missing_key.map(|action| {
        let action = match action {
            MissingKey::Share => quote!(#private::OnMissingKey::Share),
            MissingKey::Skip => quote!(#private::OnMissingKey::Skip),
            MissingKey::Reject(status) => quote!(#private::reject(#status)),
        };
        quote!(.on_missing_key(#action))
    });
    let made = quote_spanned! {Span::mixed_site()=>
        #private::Limit::new(
            #private::Policy::builder(#name, #algorithm.parse::<#private::Algorithm>()?, #first)
                #(.and(#others))* #wait #on_outage #shadow #hidden
                .on(::std::sync::Arc::clone(__store))?
        )
        #cost #only_if #refund_if #on_missing_key
    };
    match &limit.key {
        Some(key) => quote_spanned!(Span::mixed_site()=> #private::IntoKey::put_on(#key, #made)?),
        None => made,
    }
}
