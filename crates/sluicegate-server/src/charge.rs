//! Charging several descriptors of one call: [`Charge`].

/// Which descriptors of a call spend if one of them is over its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// All descriptors spend, or none does: a refused request costs nothing.
    #[default]
    AllOrNone,
    /// Each descriptor that fits spends, as in Envoy's own server. A descriptor that does not fit spends if its policy counts refused requests.
    Each,
}
