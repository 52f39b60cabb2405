//! Charging several descriptors of one call: [`Charge`].

/// The charge of a call with several descriptors of which one is over its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// All descriptors spend, or none does: a request that is refused costs nothing.
    #[default]
    AllOrNone,
    /// Each descriptor that fits spends, as in Envoy's own server. A descriptor that does not fit spends if its policy counts refused requests.
    Each,
}
