//! A request in the form that conditions are compared with: [`RequestFacts`].

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};

use sluicegate_tower::key::RequestView;
use smallvec::SmallVec;

use crate::compile::by::TierPlan;
use crate::compile::keys::{QueryParameters, host_of};
use crate::descriptor::RequestDescriptor;

/// A request, and the values that were already read from it.
pub(in crate::compile) struct RequestFacts<'a> {
    pub request: RequestView<'a>,
    /// The descriptor that the request represents, if any.
    pub described: Option<&'a RequestDescriptor>,
    /// Indices of plans and tiers: reading a tier may mean verifying a token, and many rules need it.
    tiers: RefCell<SmallVec<[(usize, usize); 2]>>,
    /// Read once, however many rules need it.
    host: OnceCell<Option<Cow<'a, str>>>,
    query: OnceCell<QueryParameters<'a>>,
}

impl<'a> RequestFacts<'a> {
    #[inline]
    pub(in crate::compile) fn of(request: RequestView<'a>) -> Self {
        let described = RequestDescriptor::of(request);
        Self { request, described, tiers: RefCell::default(), host: OnceCell::new(), query: OnceCell::new() }
    }

    /// The index of the request's tier.
    pub(in crate::compile) fn tier(&self, plan: &TierPlan) -> usize {
        let known = self.tiers.borrow().iter().find(|(known, _)| *known == plan.place).copied();
        known.map_or_else(
            || {
                let tier = plan.tier(self.request);
                self.tiers.borrow_mut().push((plan.place, tier));
                tier
            },
            |(_, tier)| tier,
        )
    }

    /// The host that the request names, without its port and in lower case.
    pub(in crate::compile) fn host(&self) -> Option<&str> {
        let host = self.host.get_or_init(|| {
            let host = host_of(self.request)?;
            let host = host.strip_suffix('.').unwrap_or(host);
            let has_capitals = host.bytes().any(|byte| byte.is_ascii_uppercase());
            Some(if has_capitals { host.to_ascii_lowercase().into() } else { host.into() })
        });
        host.as_deref()
    }

    /// The parameters of the query, decoded once, however many rules need them.
    pub(in crate::compile) fn query(&self) -> &QueryParameters<'a> {
        self.query.get_or_init(|| self.request.uri.query().map(QueryParameters::of).unwrap_or_default())
    }
}
