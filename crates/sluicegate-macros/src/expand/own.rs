//! The handler's own code, and how it is called: a function inside of the one that axum calls, or a
//! method beside it.
//!
//! Inside is better, because it takes no name beside the handler. A handler that uses `self`
//! or `Self` cannot be inside, so its code is a hidden method of the same `impl`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Attribute, Ident, ReceiverKind, Type, parse_quote};

use super::handler::Handler;

/// The handler's own code: called by its name if it is inside of the function, and as `Self::__rate_limited_outside_of_traits_..` if it is
/// beside the function.
pub(super) struct OwnFunction {
    /// The values extracted from a request, in this order.
    pub(super) types: Vec<Type>,
    /// The code beside the function that axum calls: in an `impl`, where `Self` and `self` are valid.
    pub(super) beside: Option<TokenStream>,
    /// The code inside of that function, where it takes no other name.
    pub(super) inside: Option<TokenStream>,
    /// A closure from the extracted values to the future of the response.
    pub(super) call: TokenStream,
    /// Such a future, for code that is compiled and never run.
    pub(super) future: TokenStream,
}

impl OwnFunction {
    /// `conditions` apply to all items, and `attributes` to the handler's own code.
    pub(super) fn of(
        handler: &Handler,
        private: &TokenStream,
        conditions: &[&Attribute],
        attributes: &[&Attribute],
    ) -> Self {
        let Handler { signature, body, .. } = handler;
        let (_, arguments_of_type, _) = signature.generics.split_for_impl();
        let turbofish = arguments_of_type.as_turbofish();
        let mut own = signature.clone();
        let (beside, inside, path) = if handler.is_method() {
            // The compiler shows this name where the method is in the `impl` of a trait.
            own.ident = format_ident!("__rate_limited_outside_of_traits_{}", signature.ident);
            let name = &own.ident;
            let beside = quote!(#(#conditions)* #[doc(hidden)] #(#attributes)* #own #body);
            (Some(beside), None, quote!(Self::#name #turbofish))
        } else {
            let name = &own.ident;
            (None, Some(quote!(#(#attributes)* #own #body)), quote!(#name #turbofish))
        };

        let mut types: Vec<Type> = handler.arguments().map(|argument| (*argument.ty).clone()).collect();
        let names: Vec<Ident> =
            (0..types.len()).map(|index| Ident::new(&format!("__{index}"), Span::mixed_site())).collect();
        let any = names.iter().map(|_| quote!(#private::any()));
        let span = signature.ident.span();
        let Some(receiver) = signature.receiver() else {
            return Self {
                types,
                beside,
                inside,
                call: quote_spanned!(Span::mixed_site()=> |(#(#names,)*)| #path(#(#names),*)),
                future: quote_spanned!(span=> #path(#(#any),*)),
            };
        };
        // A method is called on the router's state.
        let (state, borrow): (Type, _) = match &receiver.kind {
            ReceiverKind::Reference(..) => (parse_quote!(Self), Some(quote!(&))),
            ReceiverKind::Typed(_, ty) => match &**ty {
                Type::Reference(reference) => ((*reference.elem).clone(), Some(quote!(&))),
                owned => (owned.clone(), None),
            },
            _ => (parse_quote!(Self), None),
        };
        // A response, because the compiler loses the lifetimes of other types that a block may return.
        let call = quote_spanned! {Span::mixed_site()=>
            |(#private::State(__this), #(#names,)*)| async move {
                #private::response(#path(#borrow __this #(, #names)*).await)
            }
        };
        let future = quote_spanned!(span=> #path(#borrow #private::any() #(, #any)*));
        types.insert(0, parse_quote!(#private::State<#state>));
        Self { types, beside, inside, call, future }
    }

    /// The type of the state that a handler takes with `State<..>`: its fallback is called with the same.
    pub(super) fn state(&self, private: &TokenStream) -> TokenStream {
        let state = self.types.iter().find_map(|ty| {
            let Type::Path(path) = ty else { return None };
            let last = path.path.segments.last().filter(|last| last.ident == "State")?;
            let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
            match arguments.args.first() {
                Some(syn::GenericArgument::Type(state)) => Some(state.to_token_stream()),
                _ => None,
            }
        });
        state.unwrap_or_else(|| quote!(#private::NoState))
    }
}
