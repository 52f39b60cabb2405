//! Types that convert into one limit, [`IntoLimit`], or into several, [`IntoGroup`].

use crate::limits::{Group, Limit};

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, a [`Limit`](crate::Limit), which says whose
/// bucket, or a [`Group`] of them.
///
/// All that is `Into<Group>` implements it; it is there so that the compiler can say what is missing.
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

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, or a [`Limit`], which says whose bucket.
///
/// All that is `Into<Limit>` implements it; it is there so that the compiler can say what is missing.
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
