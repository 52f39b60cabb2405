//! Tells somebody else when a key is suspended: a chat, an incident tool, a firewall.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};
use sluicegate::observed::Observed;
use sluicegate::store::Event;
use tokio::sync::mpsc;

/// As many messages wait while the other side is slow; of more it is only counted how many they were.
pub(crate) const MOST_WAITING: usize = 64;

/// Posts each suspension, and each release, to this address as JSON:
///
/// `{"text": "login: 203.0.113.9 is suspended for 30min", "policy": "login", "key": "203.0.113.9", "seconds": 1800, "missed": 0}`
///
/// `text` is what chats show. The key is an address or a name if it is known to be one, and else a digest: no secret leaves the
/// service. `missed` is how many messages before this one could not be sent.
///
/// A listener is called in the middle of a request, so it does no more than to put the message into a queue of fixed length. A
/// task takes it from there to the network.
///
/// # Errors
/// When there cannot be an HTTP client.
pub(crate) fn post_suspensions(store: &Observed, url: Url) -> Result<(), reqwest::Error> {
    let client = Client::builder().timeout(Duration::from_secs(10)).build()?;
    let (queue, mut waiting) = mpsc::channel::<Value>(MOST_WAITING);
    let missed = Arc::new(AtomicU64::new(0));
    let not_queued = Arc::clone(&missed);
    store.listen(move |event: &Event<'_>| {
        if let Some(message) = message(event)
            && queue.try_send(message).is_err()
        {
            not_queued.fetch_add(1, Ordering::Relaxed);
        }
    });
    tokio::spawn(async move {
        while let Some(mut message) = waiting.recv().await {
            let before = missed.swap(0, Ordering::Relaxed);
            message["missed"] = before.into();
            let sent =
                client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(message.to_string());
            if let Err(error) = sent.send().await.and_then(Response::error_for_status) {
                // Its address may be a secret.
                eprintln!("the webhook was not told of a suspension: {}", error.without_url());
                missed.fetch_add(before + 1, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}

/// What is posted about an event, if it is about a suspension.
fn message(event: &Event<'_>) -> Option<Value> {
    let Event::Suspended { subject, lasts, .. } = event else { return None };
    let (policy, key) = (subject.policy?, subject.key?.to_key().shown());
    let seconds = lasts.as_secs();
    let text = match seconds {
        0 => format!("{policy}: {key} is released"),
        _ => format!("{policy}: {key} is suspended for {}", sluicegate::policy::TimeSpan::from(*lasts)),
    };
    Some(json!({ "text": text, "policy": policy, "key": key, "seconds": seconds }))
}
