//! Lists of networks as predicates, to exempt or refuse clients.

use std::net::IpAddr;

use super::client::ClientIp;
use super::networks::Networks;
use super::peer::PeerIp;
use super::walk::WalkEnd;
use crate::key::RequestView;

impl ClientIp {
    /// Whether a request's client is in one of these networks; false if its address is unknown.
    ///
    /// An address is unknown if no peer is known, and if the header of a trusted proxy has a
    /// [fault](crate::key::ForwardedFaults): it is missing, unreadable, too long, or repeated. The proxy's address is then the
    /// key, but it is on no list: [`outside`](Self::outside) is false for it, too.
    ///
    /// ```
    /// use sluicegate_tower::ClientIp;
    /// use sluicegate_tower::key::Networks;
    ///
    /// let client_ip = ClientIp::behind(["10.0.0.0/8"])?;
    /// let from_the_office = client_ip.within(Networks::new(["203.0.113.0/24"])?);
    /// # let request = http::Request::new(());
    /// assert!(!from_the_office((&request).into()));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn within(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = self.clone();
        move |request| this.certain(request).is_some_and(|ip| networks.contains(ip))
    }

    /// Whether a request's client is in none of these networks; false if its address is unknown, as for
    /// [`within`](Self::within).
    ///
    /// To refuse or limit requests of unknown origin as well, write `!within(request)`:
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::{ClientIp, RateLimitLayer};
    /// use sluicegate_tower::key::Networks;
    ///
    /// let office = ClientIp::behind(["10.0.0.0/8"])?.within(Networks::new(["203.0.113.0/24"])?);
    /// let layer = RateLimitLayer::builder(Policy::gcra("admin", "10/s").on(&MemoryStore::new())?)
    ///     .deny(move |request| !office(request))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn outside(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = self.clone();
        move |request| this.certain(request).is_some_and(|ip| !networks.contains(ip))
    }

    /// The client's address; `None` if it is unknown and replaced by a proxy's address.
    fn certain(&self, request: RequestView<'_>) -> Option<IpAddr> {
        let WalkEnd { ip, fault } = self.find(request);
        ip.filter(|_| fault.is_none()).map(|ip| self.grouping.address(ip))
    }
}

impl PeerIp {
    /// Whether a request comes from one of these networks; false if its peer is unknown.
    pub fn within(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = *self;
        move |request| this.address(request).is_some_and(|ip| networks.contains(ip))
    }

    /// Whether a request comes from none of these networks; false if its peer is unknown.
    pub fn outside(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = *self;
        move |request| this.address(request).is_some_and(|ip| !networks.contains(ip))
    }
}
