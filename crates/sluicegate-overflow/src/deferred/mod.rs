//! Deferred work: a request that exceeds a limit is kept, answered with 202, and run when its limit has room.
//!
//! A [`Deferral`] keeps such requests in a [`JobQueue`]. Its [layer](Deferral::layer) goes in front of a service; its [workers](Deferral::work) run
//! the jobs, at the pace of the limit that the requests exceeded.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use sluicegate_core::{Key, MemoryStore, Policy};
//! use sluicegate_overflow::deferred::{Deferral, Job, MemoryJobs, QueueSettings};
//! use sluicegate_tower::Limit;
//! use sluicegate_tower::key::HeaderKey;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let queue = MemoryJobs::new(QueueSettings::default())?;
//! let deferral = Deferral::builder(queue, HeaderKey::new("x-user")?, "sixteen bytes or more").build()?;
//!
//! // One order a minute, of all users together.
//! let orders = Limit::new(Policy::gcra("orders", "1/min").on(&store)?).key(Key::from("all"));
//! let shop = service_fn(|_: Request<Full<Bytes>>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("done")))) });
//! let shop = deferral.layer(orders).layer(shop);
//!
//! let order = || Request::post("/orders").header("x-user", "ada").body(Full::new(Bytes::from("tea")));
//! assert_eq!(shop.clone().oneshot(order()?).await?.status(), StatusCode::OK);
//! let kept = shop.oneshot(order()?).await?;
//! assert_eq!(kept.status(), StatusCode::ACCEPTED);
//!
//! // The path at which Ada, and no other user, can ask for the job.
//! let place = kept.headers()["location"].to_str()?;
//! let standing = deferral.answer(&Request::get(place).header("x-user", "ada").body(())?).await;
//! assert!(standing.body().ends_with(br#""state":"waiting"}"#), "{standing:?}");
//!
//! // On each instance that is to work:
//! # let stop = std::future::ready(());
//! deferral.work(&store, stop, |job: Job| async move { Ok(job.request.into_body().to_vec()) }).await;
//! # Ok(())
//! # }
//! ```
//!
//! # What a client sees
//! | request | answer |
//! |---|---|
//! | within the limit | the service's |
//! | exceeds the limit, and is kept | 202, with `Location`, the id of its job, and no promise of a time |
//! | repeats a kept request with its `Idempotency-Key` | 202 with the same id, whether the limit has room or not |
//! | has a known `Idempotency-Key`, and another method, path, query or body | 422, whether the limit has room or not |
//! | an `Idempotency-Key` of more than 255 bytes, or two | 400 |
//! | exceeds the limit, and the queue is full, it has no owner, or its body or head is too long | the refusal of the limit: 429 |
//! | a GET of its job | `waiting`, `parked`, or `done` with the result, which is kept for [a while](QueueSettings::results_last) |
//! | a GET of another owner's job, or of an unknown or forgotten job | 404 |
//! | the queue gives no answer | 503 |
//!
//! # What is kept
//! Method, path and query, `Content-Type` and `Idempotency-Key`, or the [header fields of your choice](DeferralBuilder::keep_headers), and a body up to 64 KiB or
//! [your bound](DeferralBuilder::longest_body). Cookies and credentials are not on the list. All of it, and each result, is encrypted with your secret before a queue
//! gets it: a queue holds digests of owners and keys, lengths and times, but no readable client data.
//!
//! # How a job is carried out
//! A job runs at least once: `work` is called again with the same id if its process dies, or if the queue cannot record the result. The job waits
//! for the turn of its request, under the policy's current quotas, and spends the units that the request did not. With one
//! [key](sluicegate_tower::Limit::key) for all, jobs and requests together never exceed the limit. A worker takes a turn at most two seconds ahead,
//! and requests that come meanwhile line up behind it; a job with a later turn goes back to the queue until then. A failed job is retried after a pause that starts at one second and doubles, and parked after
//! its last attempt; [`unpark`](Deferral::unpark) puts it back.
//!
//! # Which queue
//! | queue | for | a job survives |
//! |---|---|---|
//! | [`MemoryJobs`] | tests, and one process | nothing |
//! | `RedisJobs`, feature `deferred-redis` | instances that share a Redis | the death of a worker, and what the server's `appendfsync` survives |
//!
//! `RedisJobs` is a queue of [oxana](https://docs.rs/oxana): scripts move a job from list to list atomically, workers
//! send heartbeats, and another worker takes the jobs of one without heartbeats. A queue of your own implements [`JobQueue`].
//!
//! # When not to use it
//! - If the client waits for the answer: let the policy [wait](sluicegate_core::OnExceeded) for seconds, or refuse.
//! - If many keys have limits of their own, and one may send far more than its limit: its jobs may fill the
//!   [queue](QueueSettings::most_jobs), although they do not block those of other keys.
//! - As a replacement for a queue: work that is always done later need not exceed a limit first.
//!
//! # In a rules file
//! A policy with `on_exceeded: defer` defers; the program gives the [`Deferral`] to `Rules::builder().deferral(..)`, and puts
//! `rules.layer().deferring()` in front of the service.

mod answer;
mod deferral;
mod job;
mod memory;
mod queue;
#[cfg(feature = "deferred-redis")]
mod redis;

#[doc(inline)]
pub use sluicegate_tower::defer::DeferLayer;

pub use self::deferral::{Deferral, DeferralBuilder, JobOutcome};
pub use self::job::Job;
pub use self::memory::MemoryJobs;
pub use self::queue::{
    JobAttempt, JobQueue, JobRecord, JobState, JobWorker, Pushed, QueueFuture, QueueSettings, QueuedJob,
    StopFuture,
};
#[cfg(feature = "deferred-redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "deferred-redis")))]
pub use self::redis::RedisJobs;
