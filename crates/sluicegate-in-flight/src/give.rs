//! Giving permits out and taking them back, for all kinds of limits.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::store::{Event, Subject};

use crate::adaptive::Outcome;
use crate::in_flight::Permits;
use crate::line::Displaced;
use crate::permit::{PermitOf, PermitReply, SeatOf};
use crate::place::QueuePlace;
use crate::service::{Move, ServicePermit};
use crate::shared::PermitTicket;
use crate::{Acquire, Class, InFlight, NoPermit, NoPermitKind, Permit};

impl InFlight {
    /// A permit, or a place in the queue if the request `waits`.
    pub(super) fn enter(self, key: Key, (class, weight): (Class, u64), waits: bool) -> Acquire {
        let reply = match &self.0.permits {
            Permits::Each(table) => table.ask(key.as_ref(), waits),
            Permits::Service(service) => service.ask(&key, class, weight, waits),
            Permits::Shared(shared) => shared.ask(&key, waits),
        };
        Acquire::ready(match reply {
            PermitReply::Taken(of) => Ok(self.given(key, of)),
            PermitReply::Spared(begun) => Ok(self.spared(key, begun)),
            PermitReply::Waiting(place, seat, lost) => {
                self.tell_lost(lost);
                return Acquire::waiting(self, key, place, seat);
            }
            PermitReply::Full(kind) => {
                self.refused(key.as_ref(), self.is_adaptive().then_some(class));
                Err(self.none(kind))
            }
        })
    }

    /// The permit for a request that has waited.
    pub(super) fn given_in_turn(&self, key: Key, seat: &SeatOf) -> Permit {
        let of = match (&self.0.permits, seat) {
            (Permits::Service(service), SeatOf::Service(seat)) => {
                PermitOf::Service(service.begin(seat.class))
            }
            (_, SeatOf::Shared(ticket)) => PermitOf::Shared(Arc::clone(ticket)),
            _ => PermitOf::Each,
        };
        self.given(key, of)
    }

    fn given(&self, key: Key, of: PermitOf) -> Permit {
        self.0.reports.tell(|| Event::PermitTaken(Subject::of(&self.0.name).with_key(key.as_ref())));
        Permit::new(self.clone(), key, of)
    }

    /// A permit that the request would not get if the limit were enforced.
    fn spared(&self, key: Key, begun: ServicePermit) -> Permit {
        let class = begun.class;
        self.0.reports.tell(|| {
            let subject = Subject::of(&self.0.name).with_key(key.as_ref());
            Event::Shed { subject, class, is_enforced: false }
        });
        self.given(key, PermitOf::Service(begun))
    }

    fn tell_lost(&self, lost: Displaced) {
        let Some((class, key, waker)) = lost else { return };
        self.refused(key.as_ref(), Some(class));
        waker.into_iter().for_each(Waker::wake);
    }

    /// Notifies listeners that a request was refused, with its class if the limit adapts.
    pub(super) fn refused(&self, key: KeyRef<'_>, class: Option<Class>) {
        self.0.reports.tell(|| {
            let subject = Subject::of(&self.0.name).with_key(key);
            match class {
                Some(class) => Event::Shed { subject, class, is_enforced: true },
                None => Event::PermitRefused(subject),
            }
        });
    }

    pub(super) fn none(&self, kind: NoPermitKind) -> NoPermit {
        NoPermit::new(kind, self.0.name.clone(), self.permits(), self.drains_in())
    }

    pub(super) fn answered(&self, begun: &ServicePermit, outcome: Outcome) {
        if let Some(service) = self.0.permits.service() {
            self.moved(service.answered(begun, outcome));
        }
    }

    /// Notifies listeners if the number has changed.
    fn moved(&self, Move { from, to }: Move) {
        if from != to {
            self.0.reports.tell(|| Event::LimitMoved { subject: Subject::of(&self.0.name), from, to });
        }
    }

    pub(super) fn is_lost(&self, key: &Key, ticket: &PermitTicket) -> bool {
        self.0.permits.shared().is_some_and(|shared| shared.is_lost(key, ticket))
    }

    pub(super) fn leave(&self, key: &Key, of: &PermitOf, is_answered: bool) {
        match (&self.0.permits, of) {
            (Permits::Each(table), _) => table.leave(key.as_ref()),
            (Permits::Service(service), PermitOf::Service(begun)) => {
                self.moved(service.put_back(key, begun, is_answered));
            }
            (Permits::Shared(shared), PermitOf::Shared(ticket)) => shared.leave(key, ticket),
            // A permit has the kind of its limit.
            (Permits::Service(_) | Permits::Shared(_), _) => {}
        }
    }

    pub(super) fn give_up(&self, key: &Key, place: &Arc<QueuePlace>, seat: &SeatOf, is_shed: bool) {
        match (&self.0.permits, seat) {
            (Permits::Each(table), _) => table.give_up(key.as_ref(), place),
            (Permits::Service(service), SeatOf::Service(seat)) => service.give_up(key, place, seat, is_shed),
            (Permits::Shared(shared), SeatOf::Shared(ticket)) => shared.give_up(key, place, ticket),
            (Permits::Service(_) | Permits::Shared(_), _) => {}
        }
    }
}
