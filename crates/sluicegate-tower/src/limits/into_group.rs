//! Types that convert into one limit, [`IntoLimit`], or into several, [`IntoGroup`].

use crate::limits::{Group, Limit};

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, a [`Limit`](crate::Limit), which has a key of its
/// own, or a [`Group`] of limits.
///
/// Every type that is `Into<Group>` implements it. It exists for a better message of the compiler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit",
    label = "not a `RateLimiter`, a `Limit` or a `Group`",
    note = "a policy is a limit when it is on a store: `Policy::gcra(\"api\", \"5/min\").on(&store)?`",
    note = "mind the `?`: `on` returns a `Result`, since the quota may be unreadable or the name taken"
)]
pub trait IntoGroup {
    /// The limit, as a group of its own.
    fn into_group(self) -> Group;
}

#[diagnostic::do_not_recommend]
impl<L: Into<Group>> IntoGroup for L {
    fn into_group(self) -> Group {
        self.into()
    }
}

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, or a [`Limit`], which has a key of its own.
///
/// Every type that is `Into<Limit>` implements it. It exists for a better message of the compiler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit",
    label = "not a `RateLimiter` or a `Limit`",
    note = "a policy is a limit when it is on a store: `Policy::gcra(\"api\", \"5/min\").on(&store)?`",
    note = "mind the `?`: `on` returns a `Result`, since the quota may be unreadable or the name taken",
    note = "a `Group` may hold limits that cannot be decided together: give it to `builder`, whose `build` says so"
)]
pub trait IntoLimit {
    /// The limit.
    fn into_limit(self) -> Limit;
}

#[diagnostic::do_not_recommend]
impl<L: Into<Limit>> IntoLimit for L {
    fn into_limit(self) -> Limit {
        self.into()
    }
}
