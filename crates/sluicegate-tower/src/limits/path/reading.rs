//! The differences between a path and a pattern that are ignored: [`Fold`].

use std::borrow::Cow;

/// Whether a path has to match, or must not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Sense {
    /// It matches one of the patterns.
    #[default]
    In,
    /// It matches none of them.
    NotIn,
}

/// The differences that are ignored when a path is compared with a pattern. It is applied to both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "two questions, each with its answer")]
pub struct Fold {
    /// ASCII letters in any case.
    pub case: bool,
    /// A path with a trailing slash and the same path without it.
    pub trailing_slash: bool,
}

impl Fold {
    /// The path without the ignored differences.
    #[inline]
    pub fn apply<'a>(self, path: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let mut path = path.into();
        if self.trailing_slash && path.len() > 1 && path.ends_with('/') {
            path = match path {
                Cow::Borrowed(path) => Cow::Borrowed(&path[..path.len() - 1]),
                Cow::Owned(mut path) => {
                    path.pop();
                    Cow::Owned(path)
                }
            };
        }
        if self.case && path.bytes().any(|byte| byte.is_ascii_uppercase()) {
            path.to_mut().make_ascii_lowercase();
        }
        path
    }

    /// Whether it ignores no difference.
    #[inline]
    pub fn is_exact(self) -> bool {
        !self.case && !self.trailing_slash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_difference_is_gone() {
        let fold = |case, trailing_slash| Fold { case, trailing_slash };
        for (path, exact, any_case, any_slash) in [
            ("/Login/", "/Login/", "/login/", "/Login"),
            ("/", "/", "/", "/"),
            ("/Ä", "/Ä", "/Ä", "/Ä"),
            ("*", "*", "*", "*"),
        ] {
            assert_eq!(fold(false, false).apply(path), exact);
            assert_eq!(fold(true, false).apply(path), any_case);
            assert_eq!(fold(false, true).apply(path), any_slash);
        }
        assert_eq!(fold(true, true).apply("/Login/"), "/login");
    }
}
