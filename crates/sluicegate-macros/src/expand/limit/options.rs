//! The options of a limit's policy, in one table.
//!
//! Each option is a method of the policy's builder with the name of its parameter. A new option is one line here.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use sluicegate_core::OnOutage;
use syn::{LitStr, Result};

use super::values::{on_exceeded, parsed};

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
