//! Options whose values are listed, each with a word for metrics and logs: `listed!`.

/// Lists the values of an option, and gives each its word.
macro_rules! listed {
    ($option:ident, $all:literal, $as_str:literal: $($value:ident => $word:literal),+) => {
        impl $option {
            #[doc = $all]
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            #[doc = $as_str]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    };
}

pub(crate) use listed;
