//! The service: [`Guarded`].

use std::task::{Context, Poll};

use tower_service::Service;

use crate::guard::gate::{Gate, Step};
use crate::guard::{Place, ResponseFuture};

/// A service behind a layer of this crate, `L`.
///
/// It is ready when the service inside is. A call that may be made at once is made with the readiness that was polled. One
/// that has to wait does so in the [`ResponseFuture`], and gives up that readiness: a permit, a place or a connection is
/// there for calls that need not wait.
///
/// # Cloning
/// A clone shares the layer's buckets, queue and counts, and clones the service inside. Servers
/// clone a service for each connection, so everything that is shared sits behind one `Arc` in the
/// layer.
#[derive(Clone, Debug)]
pub struct Guarded<S, L> {
    inner: S,
    layer: L,
}

impl<S, L> Guarded<S, L> {
    #[doc(hidden)]
    pub fn new(inner: S, layer: L) -> Self {
        Self { inner, layer }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, Req> Service<Req> for Guarded<S, L>
where
    S: Service<Req> + Clone,
    L: Gate<Req, S::Response, S::Error>,
{
    type Response = L::Response;
    type Error = L::Error;
    type Future = ResponseFuture<S, Req, L>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(L::failed)
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let mut place = Place::default();
        match self.layer.begin(&request, &mut place) {
            // Decided at once, so the value that was polled ready is called here, and nothing is cloned.
            Step::Go(mut pass) => {
                self.layer.enter(&mut pass, &mut request);
                ResponseFuture::calling(self.inner.call(request), pass)
            }
            Step::Wait(wait) => {
                // The value that was polled ready goes: a `ConcurrencyLimit` inside was once used up by calls that waited.
                let later = self.inner.clone();
                self.inner = later.clone();
                ResponseFuture::waiting(self.layer.clone(), later, request, wait, place)
            }
            Step::Refuse(answer) => ResponseFuture::refused(answer),
        }
    }
}
