//! Waiting rooms in front of all limits: a request that matches rules with waiting rooms goes through their doors, in the order of the
//! file.
//!
//! # Order
//! Doors come before the limits: a waiting visitor spends nothing, and an admitted visitor is limited as usual. A request goes
//! through several doors one after the other, and the first door that makes it wait answers it.
//!
//! # Reloads
//! A request finishes with the doors that it began with; the next request meets the doors of the new file.
#![expect(unnameable_types, reason = "they are parts of a service that has a name")]

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use sluicegate_tower::guard::{Gate, Guarded, Next, Place, Sealed, Step};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::room::{Admitted, Door, PendingAdmission, Visit};
use smallvec::SmallVec;
use tower_layer::Layer;

/// Selects the doors of a request, by their indices.
type SelectDoors = dyn Fn(RequestView<'_>) -> SmallVec<[usize; 2]> + Send + Sync;

/// The doors of a file.
#[derive(Default)]
pub(crate) struct Doors {
    /// The doors in the order of the file.
    pub(crate) each: Vec<Arc<dyn Door>>,
    /// `None` in a file without rooms, so that its requests need no lookup.
    pub(crate) select: Option<Box<SelectDoors>>,
}

/// The doors of the file in force. Clones share them.
#[derive(Clone)]
pub struct RoomsLayer(Arc<ArcSwap<Doors>>);

impl RoomsLayer {
    pub(crate) fn new(doors: Doors) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(doors)))
    }

    /// Replaces the doors, from the next request on.
    pub(crate) fn swap(&self, doors: Doors) {
        self.0.store(Arc::new(doors));
    }
}

impl<S> Layer<S> for RoomsLayer {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

/// The doors that a request has gone through. Without rooms it is empty and allocates nothing.
#[derive(Default)]
pub struct Visits(Vec<Box<dyn Visit>>);

/// A request between two doors: the doors ahead, the next one first, and the doors passed.
#[derive(Default)]
struct DoorWalk {
    /// Doors that the request has not reached yet.
    doors: std::vec::IntoIter<Arc<dyn Door>>,
    /// The results of the passed doors: fields for its response, and values for its handler.
    visits: Visits,
}

/// A waiting request at a door.
pub struct DoorWait {
    way: DoorWalk,
    pending: PendingAdmission,
}

type DoorStep<B, E> = Step<Visits, Box<DoorWait>, Result<Response<B>, E>>;

impl DoorWalk {
    /// Goes through the doors until it has to wait.
    fn go_on<B: From<Bytes>, E>(mut self, request: RequestView<'_>) -> DoorStep<B, E> {
        while let Some(door) = self.doors.next() {
            match door.admit(request).now() {
                Ok(admitted) => {
                    if let Err(response) = self.visits.take(admitted) {
                        return Step::Refuse(Ok(response));
                    }
                }
                Err(pending) => return Step::Wait(Box::new(DoorWait { way: self, pending })),
            }
        }
        Step::Go(self.visits)
    }
}

impl Visits {
    /// Takes the answer of the next door. A refusal carries the fields of the doors before it.
    fn take<B: From<Bytes>>(&mut self, admitted: Admitted) -> Result<(), Response<B>> {
        match admitted {
            Ok(visit) => {
                self.0.push(visit);
                Ok(())
            }
            Err(response) => Err(std::mem::take(self).leave(response.map(B::from))),
        }
    }

    fn leave<B>(self, mut response: Response<B>) -> Response<B> {
        self.0.into_iter().for_each(|visit| visit.leave(response.headers_mut()));
        response
    }
}

impl Sealed for RoomsLayer {}

impl<B, ResB: From<Bytes>, E> Gate<Request<B>, Response<ResB>, E> for RoomsLayer {
    type Response = Response<ResB>;
    type Error = E;
    type Wait = Box<DoorWait>;
    type Pass = Visits;

    #[inline]
    fn begin(&self, request: &Request<B>, _: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        let doors = self.0.load();
        let Some(select) = &doors.select else { return Step::Go(Visits::default()) };
        let request = RequestView::from(request);
        let found = select(request).into_iter().filter_map(|place| doors.each.get(place).cloned());
        DoorWalk { doors: found.collect::<Vec<_>>().into_iter(), visits: Visits::default() }.go_on(request)
    }

    fn poll(
        &self,
        wait: &mut Box<DoorWait>,
        request: &mut Request<B>,
        _: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        let admitted = ready!(wait.pending.as_mut().poll(cx));
        let mut way = std::mem::take(&mut wait.way);
        Poll::Ready(match way.visits.take(admitted) {
            Ok(()) => way.go_on((&*request).into()),
            Err(response) => Step::Refuse(Ok(response)),
        })
    }

    fn enter(&self, visits: &mut Visits, request: &mut Request<B>) {
        visits.0.iter().for_each(|visit| visit.enter(request.extensions_mut()));
    }

    fn after(visits: Visits, response: Response<ResB>) -> Self::Response {
        visits.leave(response)
    }

    fn failed(error: E) -> E {
        error
    }
}

impl fmt::Debug for RoomsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doors = self.0.load();
        f.debug_list().entries(doors.each.iter().map(|door| door.name())).finish()
    }
}

impl fmt::Debug for Visits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Visits({})", self.0.len())
    }
}

impl fmt::Debug for DoorWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("visits", &self.way.visits).finish_non_exhaustive()
    }
}
