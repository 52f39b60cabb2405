//! The function below an attribute, and how its code is called.
//!
//! Its body is not parsed but kept as tokens, so that the compiler itself reports mistakes
//! in it. The code is a function inside of the one that axum calls, because that takes no name beside the handler; a handler that
//! uses `self` or `Self` cannot be inside, so its code is a hidden method of the same `impl`.
//!
//! The attribute runs before the compiler removes arguments under a `#[cfg]` that does not apply, so it cannot know their number. It
//! writes both handlers, each under its condition, and lets the compiler keep one: n conditional arguments need n + 1 rounds.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, FnArg, GenericParam, Ident, PatType, Path, Receiver, ReceiverKind, Result, Signature,
    Token, Type, Visibility, parse_quote, token,
};

use super::Mistakes;

/// A function with its unparsed body, whose mistakes the compiler reports.
pub(super) struct Handler {
    /// The attributes that are not limits.
    pub(super) attributes: Vec<Attribute>,
    /// Further `#[rate_limited]` attributes, below the expanded one.
    pub(super) limits: Vec<Attribute>,
    pub(super) visibility: Visibility,
    pub(super) signature: Signature,
    pub(super) body: TokenStream,
}

impl Parse for Handler {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (limits, attributes) = input.call(Attribute::parse_outer)?.into_iter().partition(is_limit);
        let visibility = input.parse()?;
        let is_function = input.peek(Token![fn])
            || input.peek(Token![async])
            || input.peek(Token![unsafe])
            || input.peek(Token![extern])
            || input.peek(Token![const]) && !input.peek2(Ident) && !input.peek2(Token![_]);
        if !is_function {
            return Err(input.error("`#[rate_limited]` goes on an `async fn` that is an axum handler; routers and closures take `.rate_limit(..)`"));
        }
        let signature: Signature = input.parse()?;
        if !input.peek(token::Brace) {
            return Err(input.error(
                "`#[rate_limited]` needs the handler's body here: methods of traits cannot have limits, so call a function from the method, and put the attribute on a method of the type's own `impl`",
            ));
        }
        Ok(Self { attributes, limits, visibility, signature, body: input.parse()? })
    }
}

fn is_limit(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "rate_limited")
}

impl Handler {
    /// Checks by the signature whether the function can be a handler; all mistakes are reported together.
    pub(super) fn check(&self) -> Result<()> {
        let mut mistakes = Mistakes::default();
        if let Some(receiver) = self.signature.receiver()
            && is_exclusive(receiver)
        {
            mistakes.note::<()>(Err(Error::new_spanned(
                receiver,
                "a handler shares its state with all others: take `&self`, which is the router's state",
            )));
        }
        if self.signature.asyncness.is_none() {
            mistakes.note::<()>(Err(Error::new_spanned(
                self.signature.fn_token,
                "an axum handler is an `async fn`: write `async` here",
            )));
        }
        for parameter in &self.signature.generics.params {
            if let GenericParam::Lifetime(lifetime) = parameter {
                mistakes.note::<()>(Err(Error::new_spanned(
                    lifetime,
                    "an axum handler owns what it takes, so it has no lifetimes: leave this one out",
                )));
            }
        }
        let last = self.arguments().count().saturating_sub(1);
        for (index, argument) in self.arguments().enumerate() {
            mistakes.note(check_argument(&argument.ty));
            if index < last {
                mistakes.note(check_place(&argument.ty));
            }
        }
        mistakes.none_or(())
    }

    /// Whether the function can only be in an `impl`: it has a receiver, or uses `Self` outside of its own items.
    pub(super) fn is_method(&self) -> bool {
        self.signature.receiver().is_some()
            || says_self(self.signature.to_token_stream(), &[])
            || says_self(self.body.clone(), &ITEMS)
    }

    pub(super) fn arguments(&self) -> impl Iterator<Item = &PatType> {
        self.signature.inputs.iter().filter_map(|argument| match argument {
            FnArg::Typed(argument) => Some(argument),
            FnArg::Receiver(_) => None,
        })
    }
}

fn is_exclusive(receiver: &Receiver) -> bool {
    match &receiver.kind {
        ReceiverKind::Reference(_, _, exclusive) => exclusive.is_some(),
        ReceiverKind::Typed(_, ty) => {
            matches!(&**ty, Type::Reference(reference) if reference.mutability.is_some())
        }
        _ => false,
    }
}

/// Whether the tokens contain `Self`, except in items that begin with one of these words.
///
/// This is a guess by tokens, on the safe side: a method beside the handler works for functions as
/// well, as long as there is an `impl` around.
fn says_self(tokens: TokenStream, items: &[&str]) -> bool {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "Self" => return true,
            TokenTree::Ident(word) if items.iter().any(|item| word == item) => {
                // Up to the end of the item: its body, or a semicolon.
                _ = tokens.find(|token| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(punct) => punct.as_char() == ';',
                    _ => false,
                });
            }
            TokenTree::Group(group) if says_self(group.stream(), items) => return true,
            _ => {}
        }
    }
    false
}

/// Items that have a `Self` of their own inside of a function's body.
const ITEMS: [&str; 4] = ["impl", "trait", "struct", "enum"];

fn check_argument(ty: &Type) -> Result<()> {
    match ty {
        Type::Reference(_) => {
            Err(Error::new_spanned(ty, "an axum handler owns what it takes: no extractor is a reference"))
        }
        Type::ImplTrait(_) => Err(Error::new_spanned(
            ty,
            "axum has to know what to extract: name the type, or make it a type parameter of the handler",
        )),
        _ => Ok(()),
    }
}

/// Types of axum that read the body, which only the last argument may do.
const BODIES: [&str; 6] = ["Json", "Form", "Multipart", "Bytes", "String", "RawForm"];

fn check_place(ty: &Type) -> Result<()> {
    let Type::Path(path) = ty else { return Ok(()) };
    match path.path.segments.last().filter(|last| BODIES.iter().any(|body| last.ident == body)) {
        Some(last) => {
            let problem = format!(
                "`{}` reads the body, and only the last argument can: move it to the end",
                last.ident
            );
            Err(Error::new_spanned(ty, problem))
        }
        None => Ok(()),
    }
}

/// The function without its limits.
impl ToTokens for Handler {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for attribute in &self.attributes {
            attribute.to_tokens(tokens);
        }
        self.visibility.to_tokens(tokens);
        self.signature.to_tokens(tokens);
        self.body.to_tokens(tokens);
    }
}

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
