//! The compiler's message where a policy is given a key.

use super::PolicyBuilder;

/// Nothing implements it: a policy has no key.
#[diagnostic::on_unimplemented(
    message = "a policy has no key",
    label = "whose bucket a request spends from is said by a limit",
    note = "put the policy on a store, and give the key to its limit: `Limit::new(Policy::gcra(\"api\", \"5/min\").on(&store)?).key(..)`",
    note = "without HTTP each call names its key: `limiter.check(\"ada\")`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait KeyOfPolicy {}

impl PolicyBuilder {
    /// Never compiles. It is what many look for here, and this way the compiler says where the key goes.
    #[doc(hidden)]
    pub fn key(self, _: impl KeyOfPolicy) -> Self {
        self
    }
}
