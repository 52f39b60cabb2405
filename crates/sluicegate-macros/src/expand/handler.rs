//! The function below an attribute.
//!
//! Its body is not parsed but kept as tokens, so that the compiler itself reports mistakes
//! in it. Only the signature is parsed.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, FnArg, GenericParam, Ident, PatType, Receiver, ReceiverKind, Result, Signature, Token,
    Type, Visibility, token,
};

use super::mistakes::Mistakes;

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
