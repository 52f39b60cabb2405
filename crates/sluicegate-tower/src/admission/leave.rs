//! Handles the response of an admitted request: it gives units back, settles the cost, and shows the quotas.

use std::mem;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use smallvec::SmallVec;

use crate::admission::marks::Marked;
use crate::admission::restate::restate;
use crate::admission::set::BuiltLimits;
use crate::bandwidth::Pacer;
use crate::respond::decided::{Decided, Shown};
use crate::respond::headers::lines::policy_line;
use crate::respond::headers::style::Already;
use crate::respond::headers::write::write;
use crate::respond::refusal::is_given_back;
use crate::settle::layer::{Tap, is_encoded};

impl Marked {
    /// Completes the response, and returns the reader of its body, if `reads_body`.
    // Not inlined, so that a response without marks is only passed on.
    #[inline(never)]
    pub(super) fn finish<B>(
        mut self: Box<Self>,
        response: &mut Response<B>,
        reads_body: bool,
    ) -> Option<Box<Tap>> {
        let mut tap = None;
        if is_given_back(response.extensions()) {
            // The request was not served, so nothing is charged.
            self.give_back_all();
        } else if self.made.refunds {
            tap = with_head(response, |head| self.change_by(head, reads_body));
        }
        self.mark(response);
        tap
    }

    /// The pacer of the body of this response, if limits delay it and `reads_body`.
    // Apart from the rest, because it is large.
    #[inline]
    pub(super) fn pacer<B>(&self, response: &Response<B>, reads_body: bool) -> Option<Pacer> {
        let holds = self.holds.as_ref()?;
        // A connection that continues with another protocol has no body.
        let is_over = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_over { None } else { holds.of_download(&self.made, reads_body) }
    }

    // Cold, like others here, so that the code for most responses is short and stays together.
    #[cold]
    pub(super) fn give_back_all(&mut self) {
        self.give_back(|_| true);
    }

    /// Gives back the units that limits give back for this response, and settles the others by it.
    #[cold]
    fn change_by(&mut self, head: &Parts, reads_body: bool) -> Option<Box<Tap>> {
        let mut returned: SmallVec<[bool; 4]> = SmallVec::new();
        self.limits().for_each(|limit| {
            let refund_if = self.made.plan.limits[limit].refund_if.as_ref();
            returned.push(refund_if.is_some_and(|refund| refund(head)));
        });
        if returned.contains(&true) {
            self.give_back(|index| returned[index]);
        }
        let meter = self.meter.as_ref().filter(|_| self.made.keeps_meters)?;
        let (made, limits) = (&self.made, self.limits().collect::<SmallVec<[usize; 4]>>());
        let settles =
            |index: usize| made.plan.limits[limits[index]].settle.as_ref().filter(|_| !returned[index]);
        let costs: SmallVec<[Option<u64>; 4]> =
            (0..limits.len()).map(|index| settles(index)?.cost_in(&head.headers)).collect();
        meter.settle_each(|index| costs[index]);
        // A connection that continues with another protocol has no body.
        let is_over = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let rest = (0..limits.len()).filter(|_| !is_over).filter_map(|index| {
            let settle = settles(index).filter(|settle| costs[index].is_none() && settle.reads_body())?;
            Some((index, Arc::clone(settle)))
        });
        let rest: SmallVec<[_; 2]> = rest.collect();
        match &*rest {
            [] => None,
            [(index, _), ..] if !reads_body => {
                made.report_unread(limits[*index]);
                None
            }
            _ => {
                let unreadable =
                    rest.iter().find(|(_, settle)| settle.reads_fields() && is_encoded(&head.headers));
                if let Some((index, _)) = unreadable {
                    made.report_encoded(limits[*index]);
                }
                Some(Box::new(Tap::new(meter.clone(), rest.into_iter(), &head.headers)))
            }
        }
    }

    /// The limits that the request was checked against, in the order of the meter: the limits of its asks, and limits in shadow.
    fn limits(&self) -> impl Iterator<Item = usize> {
        let asked = self.asks.iter().map(|asked| asked.limit);
        asked.chain(self.trials.iter().map(|trial| trial.limit))
    }

    /// Writes the state of the client's quotas into the response.
    pub(super) fn mark<B>(mut self: Box<Self>, response: &mut Response<B>) {
        let Some(decided) = &mut self.decided else { return };
        if let Some(meter) = &self.meter {
            restate(decided, meter.now());
        }
        if let Some(inner) = response.extensions_mut().remove::<Decided>() {
            return self.mark_with(inner, response);
        }
        // A decision is large, so it is not moved.
        self.made.write_fields(decided, response.headers_mut());
        // This allocates, so it is done only if the decision is read.
        if (self.is_read || !decided.is_allowed())
            && self.made.settings.extensions
            && let Some(decided) = self.decided.take()
        {
            response.extensions_mut().insert(decided);
        }
    }

    /// Writes the state of the client's quotas in all layers that have decided, this one and inner ones, into the response.
    #[cold]
    fn mark_with<B>(&mut self, inner: Decided, response: &mut Response<B>) {
        let Some(decided) = &self.decided else { return };
        self.made.report_double(decided, &inner);
        let merged = decided.merge(&inner);
        let shown = Shown::of(&merged);
        let line = || policy_line(&mut shown.quotas().map(|(_, quota)| quota));
        // A refusal that something further in has replaced by an answer has no wait any more.
        let wait = shown.wait.filter(|_| response.headers().contains_key(RETRY_AFTER));
        write(response.headers_mut(), &self.made.settings.style, shown, wait, &line, Already::Both);
        // A refusal by an inner layer always stays in the extensions.
        if self.is_read || !merged.is_allowed() {
            // For outer layers: the joined decision, or the previous one.
            let left = if self.made.settings.extensions { merged } else { inner };
            response.extensions_mut().insert(left);
        }
    }

    /// Gives back the units spent on the [`limits`](Self::limits) with indices for which `is_given_back` is true. The decision then has the
    /// new state of the keys, if the store answers at once.
    fn give_back(&mut self, is_given_back: impl Fn(usize) -> bool) {
        let after = match (&self.meter, &mut self.decided) {
            // The meter gives back the units that the handler has settled.
            (Some(meter), _) => {
                meter.give_back(&is_given_back);
                None
            }
            (None, Some(decided)) => self.asks.give_back(&self.made, &mut decided.decision, &is_given_back),
            (None, None) => None,
        };
        for (place, trial) in (self.asks.iter().count()..).zip(&self.trials) {
            if is_given_back(place) {
                trial.give_back(trial.cost);
            }
        }
        if let (Some(decided), Some(after)) = (&mut self.decided, after) {
            *decided = after;
        }
    }
}

impl BuiltLimits {
    /// Writes the state of the client's quotas by this decision, the only one on the request.
    pub(super) fn write_fields(&self, decided: &Decided, headers: &mut HeaderMap) {
        let shown = Shown::of(decided);
        let line = || self.known.policy_line(&decided.policies);
        write(headers, &self.settings.style, shown, shown.wait, &line, Already::Theirs);
    }
}

/// Lends the head of a response.
pub(super) fn with_head<B, T>(response: &mut Response<B>, read: impl FnOnce(&Parts) -> T) -> T {
    let mut head = Response::new(()).into_parts().0;
    (head.status, head.version) = (response.status(), response.version());
    head.headers = mem::take(response.headers_mut());
    head.extensions = mem::take(response.extensions_mut());
    let result = read(&head);
    *response.headers_mut() = head.headers;
    *response.extensions_mut() = head.extensions;
    result
}
