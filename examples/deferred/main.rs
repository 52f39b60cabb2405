//! Work that can wait is accepted now, and done at the rate that the system behind can take: jobs on a Redis Stream, for workers on
//! any instance. A job is done at least once; nothing that a client sent is readable in Redis.
//!
//! Needs a Redis that persists, `redis-server --appendonly yes`:
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example deferred --features deferred`.

pub(crate) mod job;
pub(crate) mod queue;
pub(crate) mod seal;
pub(crate) mod service;
pub(crate) mod worker;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate::{ConfigError, OnOutage, Policy, Quota, RateLimiter, RedisStore};
use sluicegate_examples::listen;
use tokio::sync::watch;

use self::job::Job;
use self::queue::{Queue, Settings};
use self::seal::Seal;
use self::worker::LATE;

/// Jobs that are under way at a time, on each instance.
const WORKERS: usize = 4;

/// The secret by which jobs are not encrypted.
const IN_CLEAR: &str = "in-clear";

/// The rate of all workers on all instances: no period has more jobs that begin than the limit, whoever carries them out.
///
/// Turns are spaced, and by a little more than the rate: a turn is used up to [`LATE`] after it was due, so the first may be that late
/// and the last be in time.
///
/// # Errors
/// When the quota cannot be read.
pub(crate) fn turns(store: &RedisStore, quota: &str) -> Result<RateLimiter, ConfigError> {
    let quota: Quota = quota.parse()?;
    let spaced = Quota::new(quota.limit(), quota.period() + LATE).burst(1);
    // Without Redis there is nothing to take, and no turn to take it at.
    Policy::gcra("orders", spaced).on_outage(OnOutage::Deny).on(store)
}

/// What the system behind does with an order. It would be told the id, by which it sees what it has done before.
async fn order(job: Job) -> worker::Outcome {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (id, attempt, body) = (&job.id[..8], job.attempt, job.request.body());
    println!("  order {id}, attempt {attempt}: {} bytes", body.len());
    if body.starts_with(b"poison") {
        return Err("nobody can do that".into());
    }
    Ok(format!("{} bytes, with thanks", body.len()).into_bytes())
}

fn guide(address: SocketAddr, secret: &str) -> String {
    format!(
        "\
Sluicegate deferred work on http://{address}: at most two orders a second, over all instances

  curl -si http://{address}/orders -H 'x-api-key: ada' -H 'idempotency-key: \"1\"' -d 'one tea'
  curl -s http://{address}/jobs/THE-ID -H 'x-api-key: ada'     (and as bob: 404)
  for i in $(seq 20); do curl -s http://{address}/orders -H 'x-api-key: ada' -d \"order $i\"; done

The first, sent again, is the same order. An order that begins with \"poison\" is tried three times and set aside. A second instance:

  PORT=3001 SECRET={secret} cargo run --example deferred --features deferred

With SECRET={IN_CLEAR} orders are readable in Redis. Another secret in three steps, each on all instances: OTHER_SECRET is the new one; SECRET
is the new one, and OTHER_SECRET the old; without OTHER_SECRET, when all orders of before are over. UNPARK=10 puts up to ten that were set
aside back at the start. Kill one of them, or Redis: what was accepted is done. Ctrl-C ends this one, and what it has in hand is finished
first."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let store = RedisStore::connect(&redis)?;
    if store.connected(Duration::from_secs(2)).await.is_err() {
        println!("There is no Redis at REDIS_URL yet: orders are refused with 503 until there is.\n");
    }
    // A service has one from where its other secrets come from, the same on all instances and at each start.
    let secret = std::env::var("SECRET").unwrap_or_else(|_| seal::hex(&seal::random::<16>()));
    let settings = Settings { attempts: 3, lease: Duration::from_secs(5), ..Settings::default() };
    let seal = if secret == IN_CLEAR { Seal::in_clear() } else { Seal::with_secret(&secret)? };
    let seal = match std::env::var("OTHER_SECRET") {
        Ok(other) => seal.and_opens(other)?,
        Err(_) => seal,
    };
    let queue = Arc::new(Queue::new(&store, "orders", seal, settings)?);
    if let Ok(most) = std::env::var("UNPARK") {
        println!("{} parked orders wait again.\n", queue.unpark(most.parse()?).await?);
    }
    let turns = turns(&store, "2/s")?;

    let (stop, stopped) = watch::channel(false);
    let workers = (0..WORKERS).map(|_| {
        let (queue, turns, stopped) = (Arc::clone(&queue), turns.clone(), stopped.clone());
        tokio::spawn(async move { worker::work(&queue, &turns, stopped, order).await })
    });
    let workers: Vec<_> = workers.collect();

    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?, &secret));
    axum::serve(listener, service::app(queue))
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    stop.send_replace(true);
    for worker in workers {
        worker.await?;
    }
    Ok(())
}
