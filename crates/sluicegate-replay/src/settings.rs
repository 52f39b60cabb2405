//! The settings of a replay: [`Settings`].

use crate::format::Format;
use crate::read::Span;
use crate::share::Share;

/// How requests of one second are taken where the log has whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithinSecond {
    /// They come one after the other, evenly over their second.
    #[default]
    Spread,
    /// They come at once.
    Together,
}

impl WithinSecond {
    /// `spread` or `together`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Together => "together",
        }
    }

    /// The other way.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Spread => Self::Together,
            Self::Together => Self::Spread,
        }
    }
}

/// The settings of a replay.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) format: Option<Format>,
    pub(crate) span: Span,
    /// The names of the rules that are replayed; none for all.
    pub(crate) only: Vec<String>,
    pub(crate) threads: usize,
    pub(crate) within_second: WithinSecond,
    pub(crate) top: usize,
    pub(crate) compares: bool,
    pub(crate) suggests: Option<Share>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: None,
            span: Span::default(),
            only: Vec::new(),
            threads: 1,
            within_second: WithinSecond::default(),
            top: 10,
            compares: false,
            suggests: None,
        }
    }
}
