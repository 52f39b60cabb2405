//! Calls by `reqwest`, whose `client.get(url).send()` stays as it is: [`OutgoingLayer`] and [`RetryAfter`] as middleware.

use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use sluicegate_core::Key;
use sluicegate_core::clock::{Clock, SystemClock};

use crate::guard::{Gate, GateAnswer, Place, Step};
use crate::outgoing::advice::{asked_wait, is_refusal};
use crate::outgoing::wire::host_key;
use crate::outgoing::{HttpWire, OutgoingLayer, Wire};

impl Wire<Request, Response> for HttpWire {
    fn key(&self, request: &Request) -> Key {
        let url = request.url();
        url.host_str()
            .map_or_else(Key::shared, |host| host_key(host, url.port_or_known_default().unwrap_or(443)))
    }

    fn head<'a>(&self, response: &'a Response) -> (StatusCode, &'a HeaderMap) {
        (response.status(), response.headers())
    }
}

/// A call that is not made fails with `Error::Middleware`, which holds a `CallError<Infallible>`.
#[async_trait]
impl<W: Wire<Request, Response>> Middleware for OutgoingLayer<W> {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let departed = match wait_for_pass(self, &mut request).await {
            Ok(departed) => departed,
            Err(answer) => return answer.map_err(Error::middleware),
        };
        let response = next.run(request, extensions).await?;
        Ok(<Self as Gate<Request, Response, Infallible>>::after(departed, response))
    }
}

/// Makes a call of `reqwest` a second time if the server refuses it with 429 or 503 and says when to come back, by `Retry-After` or the
/// other fields that an [`OutgoingLayer`] heeds. It waits until then, and makes the call once more.
///
/// The response is passed on as it is if the wait is longer than the bound, if the server names none, or if the body is a stream, which
/// cannot be sent twice. A server that answers 429 or 503 did not carry out the request, so calls of all methods are made again.
///
/// Put it around an [`OutgoingLayer`], so that the second call waits for its turn like any other.
///
/// ```
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::outgoing::{OutgoingLayer, RetryAfter};
///
/// # async fn call(url: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let per_host = Policy::gcra("partner", "10/1100ms burst 1").on(&MemoryStore::new())?;
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryAfter::up_to(Duration::from_secs(10)))
///     .with(OutgoingLayer::new().limit(per_host))
///     .build();
/// let response = client.get(url).send().await?;
/// # Ok(())
/// # }
/// ```
///
/// # When not to use it
/// If a failed connection, a timeout or any other status should be tried again, or a call more than once: use
/// `reqwest-retry` around an [`OutgoingLayer`].
#[derive(Clone, Copy, Debug)]
pub struct RetryAfter {
    longest: Duration,
}

impl RetryAfter {
    /// A second call after at most this wait.
    pub fn up_to(longest: Duration) -> Self {
        Self { longest }
    }
}

#[async_trait]
impl Middleware for RetryAfter {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let second = request.try_clone();
        let response = next.clone().run(request, extensions).await?;
        if !is_refusal(response.status()) {
            return Ok(response);
        }
        let now = Duration::from_micros(SystemClock::new().now_us());
        let wait = asked_wait(response.status(), response.headers(), now);
        let wait = wait.filter(|wait| *wait <= self.longest);
        let (Some(wait), Some(second)) = (wait, second) else { return Ok(response) };
        // A response that is not read keeps its connection.
        drop(response);
        tokio::time::sleep(wait).await;
        next.run(second, extensions).await
    }
}

/// Takes a call through the gate, up to the moment at which it may be made; the error is the answer of a call that may not.
async fn wait_for_pass<G>(
    gate: &G,
    request: &mut Request,
) -> std::result::Result<G::Pass, GateAnswer<G, Request, Response, Infallible>>
where
    G: Gate<Request, Response, Infallible>,
{
    let mut place = Place::default();
    let mut step = gate.begin(request, &mut place);
    loop {
        step = match step {
            Step::Go(mut pass) => match gate.reconsider(&mut pass, &mut place) {
                Some(next) => next,
                None => return Ok(pass),
            },
            Step::Wait(mut wait) => poll_fn(|cx| gate.poll(&mut wait, request, &mut place, cx)).await,
            Step::Refuse(answer) => return Err(answer),
        };
    }
}
