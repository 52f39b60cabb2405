//! The options of a limit's policy, in one table, and the run-time form of one limit: data, and a function that makes it.
//!
//! Each option is a method of the policy's builder with the name of its parameter. A new option is one line here. The data is `const`, so
//! that it can be in a `static` of the handler; the limiter is made at run time, because only then the store is known.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use sluicegate_core::OnOutage;
use syn::{Expr, LitStr, Result};

use super::args::{MissingKeyWord, on_exceeded, parsed};
use super::check::CheckedLimit;
use super::quota::QuotaSource;

/// An option of a policy.
pub(super) struct PolicyOption {
    /// The parameter, and the method of the builder.
    pub(super) word: &'static str,
    pub(super) form: OptionForm,
}

/// The form in which an option is written.
pub(super) enum OptionForm {
    /// The word alone.
    Flag,
    /// The word and a string.
    Text {
        /// The value in the advice about a wrong one.
        example: &'static str,
        /// Checks the string, and gives the argument of the method.
        argument: fn(&LitStr) -> Result<TokenStream>,
    },
}

/// An option, with its value if it has one.
pub(super) type GivenOption = (&'static PolicyOption, Option<LitStr>);

/// All options of policies that an attribute can have.
pub(super) static OPTIONS: [PolicyOption; 5] = [
    PolicyOption::text("on_exceeded", "\"wait 5s\"", on_exceeded),
    PolicyOption::text("on_outage", "\"allow\"", parsed::<OnOutage>),
    PolicyOption::flag("shadow"),
    PolicyOption::flag("hidden"),
    PolicyOption::flag("count_rejected"),
];

impl PolicyOption {
    const fn flag(word: &'static str) -> Self {
        Self { word, form: OptionForm::Flag }
    }

    const fn text(
        word: &'static str,
        example: &'static str,
        argument: fn(&LitStr) -> Result<TokenStream>,
    ) -> Self {
        Self { word, form: OptionForm::Text { example, argument } }
    }

    /// The call of the builder's method.
    ///
    /// # Errors
    /// For a value that the core does not read.
    pub(super) fn call(&self, value: Option<&LitStr>) -> Result<TokenStream> {
        let method = Ident::new(self.word, Span::call_site());
        let argument = match (&self.form, value) {
            (OptionForm::Text { argument, .. }, Some(value)) => Some(argument(value)?),
            _ => None,
        };
        Ok(quote!(.#method(#argument)))
    }
}

/// The limit as one would write it by hand; `__source` and `__name` are the closure's arguments.
pub(super) fn draft(limit: &CheckedLimit, private: &TokenStream) -> TokenStream {
    let name = match &limit.name {
        Some(name) => quote_spanned!(Span::mixed_site()=> ::core::option::Option::Some(#name)),
        None => quote_spanned!(Span::mixed_site()=> ::core::option::Option::None),
    };
    let variables = limit.quotas.iter().filter_map(QuotaSource::variable);
    let limiter = limiter(limit, private);
    let cost = limit.cost.as_ref().map(|cost| match cost {
        Expr::Closure(closure) => quote!(.cost_fn(#closure)),
        number => quote!(.cost(#number)?),
    });
    let only_if = limit.only_if.as_ref().map(|applies| quote!(.only_if(#applies)));
    let refund_if = limit.refund_if.as_ref().map(|refund| quote!(.refund_if(#refund)));
    let on_missing_key = limit.on_missing_key.map(|action| {
        let action = match action {
            MissingKeyWord::Share => quote!(#private::OnMissingKey::Share),
            MissingKeyWord::Skip => quote!(#private::OnMissingKey::Skip),
            MissingKeyWord::Reject(status) => quote!(#private::reject(#status)),
        };
        quote!(.on_missing_key(#action))
    });
    let key = limit.key.as_ref().map(
        |key| quote_spanned!(Span::mixed_site()=> let __limit = #private::IntoKey::put_on(#key, __limit)?;),
    );
    quote_spanned! {Span::mixed_site()=>
        #private::Draft::new(#name, &[#(#variables),*], |__source, __name| {
            let __limiter = #limiter.on(::std::sync::Arc::clone(__source.store()))?;
            let __limit = #private::Limit::new(::core::clone::Clone::clone(&__limiter))
                #cost #only_if #refund_if #on_missing_key;
            #key
            ::core::result::Result::Ok((__limiter, __limit))
        })
    }
}

fn limiter(limit: &CheckedLimit, private: &TokenStream) -> TokenStream {
    let source = quote_spanned!(Span::mixed_site()=> __source);
    let quotas: Vec<TokenStream> = limit.quotas.iter().map(|quota| quota.expression(&source)).collect();
    let (algorithm, first, others) = (&limit.algorithm, &quotas[0], &quotas[1..]);
    let options = &limit.options;
    quote_spanned! {Span::mixed_site()=>
        #private::Policy::builder(__name, #algorithm.parse::<#private::Algorithm>()?, #first)
            #(.and(#others))* #(#options)*
    }
}
