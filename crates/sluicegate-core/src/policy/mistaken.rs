//! Methods that users may look for on a policy. They never compile, and the compiler says what to write instead.

use super::{Policy, PolicyBuilder};

/// No type implements it, because a policy has no key.
#[diagnostic::on_unimplemented(
    message = "a policy has no key",
    label = "whose bucket a request spends from is said by a limit",
    note = "put the policy on a store, and give the key to its limit: `Limit::new(Policy::gcra(\"api\", \"5/min\").on(&store)?).key(..)`",
    note = "without HTTP each call names its key: `limiter.check(\"ada\")`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait KeyOfPolicy {}

/// No type implements it, because a quota alone does not name its algorithm.
#[diagnostic::on_unimplemented(
    message = "a policy is made by the name of its algorithm",
    label = "by which algorithm is this counted?",
    note = "write `Policy::gcra(\"api\", \"5/min\")` where any will do, or `sliding_log`, `sliding_counter`, `fixed_window`, `token_bucket`, `leaky_bucket`, `leaky_queue`",
    note = "where it is chosen at run time: `Policy::builder(\"api\", algorithm, \"5/min\")`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait QuotaOfNoAlgorithm {
    fn never(self) -> PolicyBuilder;
}

impl PolicyBuilder {
    /// Never compiles: the key belongs to a limit.
    #[doc(hidden)]
    pub fn key(self, _: impl KeyOfPolicy) -> Self {
        self
    }
}

impl Policy {
    /// Never compiles: each algorithm has a constructor.
    #[doc(hidden)]
    #[expect(clippy::new_ret_no_self, reason = "all constructors make a builder")]
    pub fn new(_: impl Into<String>, quota: impl QuotaOfNoAlgorithm) -> PolicyBuilder {
        quota.never()
    }
}
