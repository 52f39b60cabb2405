//! The expansion of an attribute.
//!
//! `#[rate_limited("5/min")] pub async fn login(State(app): State<App>, Json(body): Json<Login>) -> R { .. }` is, with
//! `p` for `::sluicegate::__private`:
//!
//! ```text
//! pub async fn login(_: p::Skip, limited: p::Limited<(State<App>, Json<Login>)>) -> p::Response {
//!     static LIMITS: [p::Draft; 1] = [ /* the policy, the key and the cost */ ];
//!     static ATTRIBUTE: p::Attribute = p::Attribute::new(.., &LIMITS);
//!     async fn login(State(app): State<App>, Json(body): Json<Login>) -> R { .. }
//!     limited.run(&ATTRIBUTE, |(state, json)| login(state, json)).await
//! }
//! ```
//!
//! `Limited` is an extractor that takes the whole request, and the way to extract the arguments from it; `run` puts both
//! behind the same layer as `.rate_limit(..)` does. So extractors run behind the limit, as on a route, and axum infers
//! the state as for any handler. The function keeps its number of arguments, because `#[axum::debug_handler]` calls it
//! with that many. Everything is in one function, because an `impl` takes no other items; the handler's own code is a
//! method next to it if it needs `Self`.

mod handler;
mod limit;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, GenericParam, Generics, Result, ReturnType, Type, Visibility, WherePredicate,
    parse_quote,
};

use self::handler::{Handler, OwnFunction, split};
use self::limit::AttributeLimits;

/// Expands the attribute to items; mistakes become compile errors.
///
/// The order is: read the function, read and check all limits, split on conditional arguments, expand.
/// If a step fails, the output is the unchanged function with the errors.
pub(crate) fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let handler: Handler = match syn::parse2(item.clone()) {
        Ok(handler) => handler,
        Err(error) => return with(&error, item),
    };
    match AttributeLimits::read(arguments.clone(), &handler) {
        Ok(limits) => {
            split(&arguments, &handler, &limits.crate_path).unwrap_or_else(|| expand(&handler, &limits))
        }
        // The function stays, so that its uses are not reported as well.
        Err(error) => with(&error, handler),
    }
}

/// Keeps the item, so that a wrong limit does not make every use of the handler an error as well.
fn with(error: &Error, item: impl ToTokens) -> TokenStream {
    let error = error.to_compile_error();
    quote!(#error #item)
}

/// All paths begin with the crate's, so that imports and shadowing in the handler's module do
/// not change their meaning.
fn expand(handler: &Handler, limits: &AttributeLimits) -> TokenStream {
    let AttributeLimits { fallback, crate_path, .. } = limits;
    let private = quote!(#crate_path::__private);
    let Handler { signature, attributes, .. } = handler;
    let visibility = own_visibility(&handler.visibility);
    let name = &signature.ident;
    let (conditions, shown, inner) = sort(attributes);
    let own = OwnFunction::of(handler, &private, &conditions, &inner);
    let checks = checks(handler, &own, &private);
    let OwnFunction { types, beside, inside, call, .. } = &own;

    let skips = types.iter().skip(1).map(|_| quote!(_: #private::Skip,));
    let generics = movable(signature.generics.clone());
    let (generics, _, conditions_of_function) = generics.split_for_impl();
    let path = name.unraw().to_string();
    let drafts = limits.drafts(&private);
    let count = drafts.len();
    let state = fallback.as_ref().map(|_| own.state(&private));
    let run = match fallback {
        Some(fallback) => quote_spanned!(Span::mixed_site()=> run_or(&__ATTRIBUTE, #call, #fallback)),
        None => quote_spanned!(Span::mixed_site()=> run(&__ATTRIBUTE, #call)),
    };

    quote_spanned! {Span::mixed_site()=>
        #beside

        #(#conditions)*
        #(#shown)*
        #visibility async fn #name #generics (
            #(#skips)*
            __limited: #private::Limited<(#(#types,)*), #state>
        ) -> #private::Response
        #conditions_of_function
        {
            static __LIMITS: [#private::Draft; #count] = [#(#drafts),*];
            static __ATTRIBUTE: #private::Attribute = #private::Attribute::new(
                ::core::concat!(::core::module_path!(), "::", #path),
                ::core::concat!(::core::file!(), ":", ::core::line!()),
                &__LIMITS,
            );
            #inside
            #checks
            __limited.#run.await
        }
    }
}

/// The visibility of the function, said in full: the compiler refuses that in a trait and in the `impl` of one, at the attribute. The
/// tokens alone do not show a trait, and a method of a trait would be limited or not by what it contains.
fn own_visibility(visibility: &Visibility) -> TokenStream {
    match visibility {
        Visibility::Inherited => quote_spanned!(Span::call_site()=> pub(self)),
        said => said.to_token_stream(),
    }
}

/// Code that never runs, for clearer errors than those of axum's trait for handlers.
fn checks(handler: &Handler, own: &OwnFunction, private: &TokenStream) -> TokenStream {
    let future = &own.future;
    let future = quote_spanned!(handler.signature.ident.span()=> #private::check_future(#future));
    let response = match &handler.signature.output {
        // An opaque type has no name, and its bounds say that it is a response.
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
        TokenTree::Ident(word) => word == "impl",
        TokenTree::Group(group) => is_opaque(group.stream()),
        _ => false,
    })
}

/// Sorts attributes into those for all items, those on the visible function, and those on the handler's code.
fn sort(attributes: &[Attribute]) -> (Vec<&Attribute>, Vec<&Attribute>, Vec<&Attribute>) {
    let (mut conditions, mut shown, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for attribute in attributes {
        let is = |names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
        if is(&["cfg"]) {
            conditions.push(attribute);
        } else if is(&["doc", "deprecated"]) {
            shown.push(attribute);
        } else {
            // Attributes that silence the function's own lints are for both parts.
            if is(&["allow", "warn", "deny", "forbid"]) {
                shown.push(attribute);
            }
            inner.push(attribute);
        }
    }
    (conditions, shown, inner)
}

/// The type parameters with the bounds that a request on any thread needs, beside the parameter's other bounds.
fn movable(mut generics: Generics) -> Generics {
    let Generics { params, where_clause, .. } = &mut generics;
    for parameter in params {
        let GenericParam::Type(parameter) = parameter else { continue };
        let mut predicates = where_clause.iter_mut().flat_map(|clause| &mut clause.predicates);
        let bounds = predicates.find_map(|predicate| match predicate {
            WherePredicate::Type(predicate) => match &predicate.bounded_ty {
                Type::Path(path) if path.path.is_ident(&parameter.ident) => Some(&mut predicate.bounds),
                _ => None,
            },
            _ => None,
        });
        let bounds = bounds.unwrap_or(&mut parameter.bounds);
        bounds.push(parse_quote!(::core::marker::Send));
        bounds.push(parse_quote!(::core::marker::Sync));
        bounds.push(parse_quote!('static));
    }
    generics
}

/// Mistakes found so far.
///
/// They are reported together, so that one run of the compiler shows all
/// mistakes.
#[derive(Default)]
struct Mistakes(Option<Error>);

impl Mistakes {
    /// The value; a mistake is added to the others.
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                match &mut self.0 {
                    Some(first) => first.combine(error),
                    none => *none = Some(error),
                }
                None
            }
        }
    }

    /// The value, if there was no mistake.
    fn none_or<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}
