//! Tells somebody else when a key is suspended: a chat, an incident tool, a firewall.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};
use sluicegate::observed::Observed;
use sluicegate::store::Event;

/// As many messages wait while the other side is slow; of more it is only counted how many they were.
pub(crate) const MOST_WAITING: usize = 64;

/// Posts each suspension, and each release, to this address as JSON:
///
/// `{"text": "login: 203.0.113.9 is suspended for 30min", "policy": "login", "key": "203.0.113.9", "seconds": 1800, "by": null, "missed": 0}`
///
/// `text` is what chats show. The key is an address or a name if it is known to be one, and else a digest: no secret leaves the
/// service. `by` is the operator who has done it by hand, if that is known; `missed` is how many messages before this one could not be
/// sent.
///
/// No request waits for that: events wait in a queue of fixed length, from which a task takes them to the network.
///
/// # Errors
/// When there cannot be an HTTP client.
pub(crate) fn post_suspensions(store: &Observed, url: Url) -> Result<(), reqwest::Error> {
    let client = Client::builder().timeout(Duration::from_secs(10)).build()?;
    let mut suspensions = store.events(MOST_WAITING, message);
    tokio::spawn(async move {
        let (mut dropped_before, mut unsent) = (0, 0);
        while let Some(mut message) = suspensions.next().await {
            let dropped = suspensions.dropped();
            message["missed"] = (dropped - dropped_before + unsent).into();
            let sent =
                client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(message.to_string());
            match sent.send().await.and_then(Response::error_for_status) {
                Ok(_) => (dropped_before, unsent) = (dropped, 0),
                Err(error) => {
                    unsent += 1;
                    // Its address may be a secret.
                    eprintln!("the webhook was not told of a suspension: {}", error.without_url());
                }
            }
        }
    });
    Ok(())
}

/// What is posted about an event, if it is about a suspension.
fn message(event: &Event<'_>) -> Option<Value> {
    let Event::Suspended { subject, lasts, by, .. } = event else { return None };
    let (policy, key) = (subject.policy?, subject.key?.to_key().shown());
    let seconds = lasts.as_secs();
    let text = match seconds {
        0 => format!("{policy}: {key} is released"),
        _ => format!("{policy}: {key} is suspended for {}", sluicegate::policy::TimeSpan::from(*lasts)),
    };
    Some(json!({ "text": text, "policy": policy, "key": key, "seconds": seconds, "by": by }))
}
