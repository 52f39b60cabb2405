//! How keys go over from a policy to the one that replaces it: [`Inherit`].

/// How the keys of a replaced policy start under the new one, once, when they are next asked for.
///
/// A quota inherits from the one with the same rule; if there is none, from the one with the same id; if there is none,
/// from the one that has counted most. A quota whose rule stays is not touched at all. A memory store follows a key
/// through up to 32 replacements between two of its requests.
///
/// All but [`Spent`](Self::Spent) are Bucket4j's (`TokensInheritanceStrategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inherit {
    /// With the units that were spent: 50 of 100 become 50 of 10, a debt of 40. Nobody gains by the replacement, whatever
    /// the old and the new algorithm. A debt under a sliding counter or log is forgotten after its periods.
    #[default]
    Spent,
    /// Afresh: everybody has the whole new burst.
    Reset,
    /// With the units that remained, at most the new burst.
    AsIs,
    /// With the same part of the burst that remained.
    Proportional,
    /// With the units that remained, and the units that the burst has grown by.
    Additive,
}
