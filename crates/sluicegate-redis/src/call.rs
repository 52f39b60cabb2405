//! One call: the way of cells that live together to Redis and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::{Clock, Decision, StoreError};
use tokio::time::Instant;

use crate::cell::Cell;
use crate::link::{Link, part_of};
use crate::short;
use crate::together::{Request, Together, decide_long, decide_short};

pub(crate) type Answer = Result<Decision, StoreError>;

/// What a store calls Redis by.
pub(crate) struct Caller {
    pub(crate) link: Link,
    /// None on a Cluster, where only keys of one slot can share a call.
    pub(crate) together: Option<Together>,
    pub(crate) clock: Option<Box<dyn Clock>>,
    pub(crate) deadline: Duration,
}

impl Caller {
    /// One script call for cells that live together.
    pub(crate) fn call(&self, cells: Vec<Cell>) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let time = self.clock.as_ref().map(|clock| clock.now_us());
        let request = Request { cells, time, deadline: Instant::now() + self.deadline };
        let is_short = short::can_decide(&request.cells);
        let part = match &self.together {
            Some(together) if is_short => return Box::pin(together.decide(request)),
            Some(_) => 0,
            None => part_of(request.cells[0].slot()),
        };
        let link = Arc::clone(self.link.state());
        Box::pin(async move {
            if is_short {
                decide_short(&link, part, request).await
            } else {
                decide_long(&link, part, request).await
            }
        })
    }
}
