//! The limits of a handler: parses its attributes, and reports their mistakes.
//!
//! | file | does |
//! |---|---|
//! | `args` | reads the arguments of one attribute: words with suggestions for unknown ones, and values by the core's own `FromStr` |
//! | `options` | lists the options of policies, and generates the code that makes the limit at run time |
//! | `quota` | parses the sources of quotas |
//! | `check` | checks a limit by building its policy |

mod args;
mod check;
mod options;
mod quota;

use proc_macro2::TokenStream;
use sluicegate_core::policy::MAX_QUOTAS;
use syn::{Error, Expr, LitStr, Path, Result, parse_quote};

use self::args::Args;
use self::check::CheckedLimit;
use super::Mistakes;
use super::handler::Handler;

/// All attributes of a handler together.
pub(super) struct AttributeLimits {
    limits: Vec<CheckedLimit>,
    pub(super) fallback: Option<Expr>,
    pub(super) crate_path: Path,
}

impl AttributeLimits {
    /// Reads these arguments and the attributes below them.
    ///
    /// # Errors
    /// Reports all mistakes in the attributes and in the function's signature together.
    pub(super) fn read(arguments: TokenStream, handler: &Handler) -> Result<Self> {
        let mut mistakes = Mistakes::default();
        mistakes.note(handler.check());
        let (mut crate_path, mut fallback) = (None, None);
        let mut limits = Vec::new();
        for args in [syn::parse2(arguments)].into_iter().chain(handler.limits.iter().map(args::of)) {
            let args: Result<Args> = args;
            let Some(mut args) = mistakes.note(args) else { continue };
            crate_path = crate_path.take().or_else(|| args.crate_path.take());
            if let (Some(_), Some(second)) = (&fallback, &args.fallback) {
                mistakes.note::<()>(Err(Error::new_spanned(
                    second,
                    "a handler has one fallback, for all of its limits: keep one of them",
                )));
            }
            fallback = fallback.take().or_else(|| args.fallback.take());
            limits.extend(mistakes.note(check::limit(args, handler)));
        }
        mistakes.note(together(&limits));
        let crate_path = crate_path.unwrap_or_else(|| parse_quote!(::sluicegate));
        mistakes.none_or(Self { limits, fallback, crate_path })
    }

    /// The generated code of each limit.
    pub(super) fn drafts(&self, private: &TokenStream) -> impl ExactSizeIterator<Item = TokenStream> {
        self.limits.iter().map(|limit| options::draft(limit, private))
    }
}

/// Checks the limits of one handler together: two limits of one name would conflict, and a store decides only a bounded
/// number of quotas at once.
fn together(limits: &[CheckedLimit]) -> Result<()> {
    let quotas: usize = limits.iter().map(|limit| limit.quotas.len()).sum();
    if let (true, Some(last)) = (quotas > MAX_QUOTAS, limits.last().and_then(|last| last.quotas.last())) {
        return Err(Error::new(
            last.span(),
            format!("the limits of this handler have {quotas} quotas, and at most {MAX_QUOTAS} fit"),
        ));
    }
    for (index, limit) in limits.iter().enumerate() {
        let name = limit.name.as_ref().map(LitStr::value);
        if limits[..index].iter().any(|earlier| earlier.name.as_ref().map(LitStr::value) == name) {
            let problem = match &name {
                Some(name) => format!("two limits of this handler are called {name:?}"),
                None => "two limits of this handler have no name".to_owned(),
            };
            return Err(Error::new(
                limit.name_span,
                format!("{problem}: give each a name of its own with `name = \"..\"`"),
            ));
        }
    }
    Ok(())
}
