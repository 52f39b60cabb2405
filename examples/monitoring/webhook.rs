//! Reports suspensions of keys to another system: a chat, an incident tool, a firewall.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};
use sluicegate::observed::Observed;
use sluicegate::store::Event;

/// The most messages that wait while the receiver is slow; further ones are only counted.
pub(crate) const MOST_WAITING: usize = 64;

/// Posts each suspension, and each release, to this address as JSON:
///
/// `{"text": "login: 203.0.113.9 is suspended for 30min", "policy": "login", "key": "203.0.113.9", "seconds": 1800, "by": null, "missed": 0}`
///
/// Chats show `text`. The key is an address or a name if it is known to be one, otherwise a digest: no secret leaves the
/// service. `by` is the operator, if it was done by hand and the name is known; `missed` is the number of earlier messages that could not be
/// sent.
///
/// No request waits for this: events wait in a queue of fixed length, and a task sends them.
///
/// # Errors
/// When the HTTP client cannot be built.
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
                    // The URL may contain a secret.
                    eprintln!("the webhook was not told of a suspension: {}", error.without_url());
                }
            }
        }
    });
    Ok(())
}

/// The message for an event, if it is a suspension.
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
