//! The page as a service: [`StatusPage`].

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::{Request, Response};
use http_body::Body;
use jiff::Timestamp;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::{RateLimiter, Store};
use sluicegate_observed::Observed;
use sluicegate_tower::key::KeyForm;
use sluicegate_tower::limits::LimitsHandle;
use sluicegate_tower::room::Room;
use tower_service::Service;

use crate::handler::PageHandler;

/// The status page: a service to put behind any router. Cheap to clone; see the [crate's example](crate).
///
/// | path below the place where it is put | method | purpose |
/// |---|---|---|
/// | `/` | GET | the page; `?theme=light` and `?theme=dark` choose its colours |
/// | `/status.json` | GET | the numbers of the page as JSON |
/// | `/` | POST, a form | the actions of the page's own forms |
/// | `/keys/look-up`, `/keys/reset`, `/keys/suspend`, `/keys/release`, `/keys/give`, `/policies/{name}`, `/rooms/{name}` | POST, JSON | the actions for programs |
///
/// A router may strip the path in front or not: only its end counts. `HEAD` is answered as `GET`. A field that is left empty in a
/// form is absent. A form that has done something is answered with 303: it redirects the browser to the page with the result, which is in
/// the address for an hour, encrypted, so that reloading the page does not send the form again. A form that has done nothing is answered by the
/// page with the reason.
///
/// # Content of the page
/// | part | content |
/// |---|---|
/// | head | the instance and its uptime; each store: its state, its breaker, the 99th percentile of its answers, its table; the operator's name; light or dark |
/// | summary | one sentence about the state, and buttons for the first steps: to look up the key that is refused most, to tighten the policy of an alarm, to end a change |
/// | notices | the current alarms of observed stores, each with a form to tighten its policy or the button that ends that; the [notices](Self::notice) of the application |
/// | stores | their counts: breakers that opened, errors, decisions without them, keys not settled, evictions, requests that layers refused or let in without asking them |
/// | policies | a row each: quotas, mode and algorithm, an operator's override and its end, and those of single keys; what it does now, while its store does not answer; let in and refused per second, with those that another policy refused and those of an outage apart; waiting; the last hour in bars of two minutes; "close to the limit", the part of the requests let in that left less than a fifth in that hour; keys refused as suspended in the last minute; a form to change it |
/// | requests at once | the limits in flight, a row each, if there are any: permits in use, let in and refused per second, the last hour |
/// | limits that adapt | a row each, if there are any: the numbers of requests at once, under way and waiting, the latency by which it adapts, the numbers shed; number and latency over the last hour |
/// | waiting rooms | a row each, if there are any: rate and mode, the number of waiting visitors and their wait, the numbers of visitors inside, let in and passed over; forms to set the rate, to pause and to open to all |
/// | most refused keys | up to ten keys of each policy with their share, and buttons to look them up, suspend and release them; below, the keys that ask most. In a flood of many keys, keys whose count is within its error are not shown, on the page and in `status.json` |
/// | look up a key | as a request, by the extractors of the limits; or as a key, by policy and text |
/// | looked up | the key as its kind allows, the decision on the request, how often this instance has refused it lately, and its status in each quota: units left, wait, strikes; buttons to reset, suspend and release, and a form to give only this key other quotas for a time |
/// | events | changes of policies and rooms, suspensions and releases, with their operators; outages and their ends |
///
/// Without a guard there are no forms and no buttons, keys are digests, and notices show only their subjects.
///
/// All answers carry `Content-Security-Policy`, `Cache-Control: no-store`, `Referrer-Policy: no-referrer` and
/// `X-Content-Type-Options: nosniff`.
///
/// # For programs
/// A body such as `{"policy": "login", "key": "203.0.113.9"}` names a key by its text; `{"ref": ".."}` by a word that the page or an answer
/// has given; `{"request": {"limits": "api", "peer": "203.0.113.9", "headers": {"x-api-key": ".."}}}` by a request, whose keys the
/// extractors find as in a live one. With `"policy"` beside it, the request's key of that policy is meant.
///
/// | field | of | meaning |
/// |---|---|---|
/// | `policy`, `key` | `keys/..` | a key of this policy, by its text |
/// | `as` | `keys/..` | how the text is read: `any`, as the limits of the policy find keys, otherwise as an address if it reads as one, or text; `text`; `number`; `secret`, an API key, token or cookie whose digest is the key; `subject`, the subject of a token |
/// | `issuer` | `keys/..` | with `subject`: the issuer of the token, empty if tokens name none. It may be left out if the extractor was given a single issuer |
/// | `ref` | `keys/..` | a key by its word, instead of `policy` and `key` |
/// | `request` | `keys/..` | a hypothetical request: `limits` (a name, if there are several), `method`, `path`, `peer`, and `headers` as an object, or as text with one in a line |
/// | `for` | `keys/suspend`, `keys/give`, `policies/..` | the length: `30min`, `1h 30min`. Default: for a suspension, the length in its policy; for a change and for quotas of a key, an hour |
/// | `until` | `keys/give`, `policies/..` | the end, instead of the length: `2026-11-21T15:00:00Z` |
/// | `quota` | `keys/give`, `policies/..` | the quotas of the key alone, or the new quotas of the policy: `10/min`, or several with commas between them |
/// | `mode` | `policies/..` | `enforce`, `shadow` or `off` |
/// | `version` | `keys/give`, `policies/..` | the version of the current override of the key or the policy, which is replaced |
/// | `do` | `policies/..` | `withdraw` ends the override of that `version`, of the policy or of a key |
/// | `rate` | `rooms/..` | the new rate of the room: `500/s` |
/// | `mode` | `rooms/..` | `metered`: visitors enter at the rate; `paused`: no visitor enters; `open`: all visitors enter, for which `confirm` has to be `yes` |
/// | `seen` | `rooms/..` | rate and mode as they were seen, `500/s metered`: nothing is done if they have changed |
///
/// A change of a room lasts until the next one. A field that is not in this list is a mistake, and nothing is done.
///
/// The header `x-status-token` of `GET status.json` is sent back with each POST, by the same visitor and within the hour, and
/// an `origin` that the page knows.
///
/// ```
/// use http::Request;
/// use serde_json::{Value, json};
/// use sluicegate_observed::Observed;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_status::StatusPage;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Observed::named("programs", MemoryStore::new())?;
/// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(&store)?;
/// let page = StatusPage::new(&store).guard(|_| Some("ada")).secret([7; 32]).origin("https://ops.example.org").build()?;
///
/// let request = Request::get("/status.json").header("host", "ops.example.org").body(String::new())?;
/// let token = page.clone().oneshot(request).await?.headers()["x-status-token"].clone();
/// let post = async |path: &str, body: Value| -> Result<Value, Box<dyn std::error::Error>> {
///     let request = Request::post(path)
///         .header("host", "ops.example.org")
///         .header("origin", "https://ops.example.org")
///         .header("content-type", "application/json")
///         .header("x-status-token", token.clone());
///     let answer = page.clone().oneshot(request.body(body.to_string())?).await?;
///     Ok(serde_json::from_str(answer.body())?)
/// };
///
/// for _ in 0..8 {
///     login.check("ada").await?;
/// }
/// let found = post("/keys/look-up", json!({"policy": "login", "key": "ada"})).await?;
/// assert_eq!(found["limits"][0]["quotas"][0]["remaining"], 0);
/// assert_eq!(found["limits"][0]["strikes"], json!({"counted": 3, "of": 100, "suspensions": 0}));
///
/// // By its word, for the length in the policy; the answer has the key's status after that.
/// let found = post("/keys/suspend", json!({"ref": found["limits"][0]["ref"]})).await?;
/// assert_eq!(found["limits"][0]["quotas"][0]["back_seconds"], 1_800);
///
/// let changed = post("/policies/login", json!({"quota": "10/min", "for": "30min"})).await?;
/// assert_eq!((&changed["quotas"][0]["limit"], &changed["override"]["by"]), (&json!(10), &json!("ada")));
/// let version = &changed["override"]["version"];
/// let changed = post("/policies/login", json!({"do": "withdraw", "version": version})).await?;
/// assert_eq!(changed["quotas"][0]["limit"], 5);
/// # Ok(())
/// # }
/// ```
///
/// `keys/..` answers with the decision that the key would get now, `would_be`, and its status in each of the `limits`:
///
/// | field | content |
/// |---|---|
/// | `limit`, `policy`, `tier` | the limit of the request, and the policy that it asks |
/// | `key`, `ref` | the key as its kind lets it be shown, if it was found by a request; a word for it |
/// | `cost` | the units that the request asks for |
/// | `quotas` | for each: `remaining` of `capacity`, `reset_seconds` until all units are back, `back_seconds` until the request passes if it does not pass now, and whether that is because the key is `suspended` |
/// | `refused` | the number of times that this instance has refused the key in the last 5 to 10 minutes, if it is among the most refused ones |
/// | `strikes` | the refusals of the key that are `counted`, the number `of` refusals that suspends it, and the remembered `suspensions` |
/// | `given` | the quotas that an operator has given only this key, with the operator, the end and the version |
/// | `not_asked` | the reason why the limit does not ask its policy about this request |
///
/// A change answers with the policy or the room as in `status.json`. An error is `{"error": ".."}`, a sentence that names the field and
/// what to write, and never shows a key:
///
/// | status | when |
/// |---|---|
/// | 400 | something in the request cannot be read, is not known, or cannot be kept exactly; nothing was changed |
/// | 403 | the visitor has no permission, or the token or the origin is not the page's |
/// | 404, 405, 415 | there is nothing at that path, or it takes another method or type |
/// | 409 | the room has changed since it was seen; another override is in force: read it, and send its `version`; or no policy is enforced that could be put into shadow mode |
/// | 413 | the body is longer than 64 KiB |
/// | 421 | the request names a host that the page does not know |
/// | 503 | the store, or the line of a room, gave no answer; a key may have been suspended or reset, and a room changed, or not |
#[derive(Clone)]
pub struct StatusPage(Arc<PageHandler>);

impl StatusPage {
    pub(crate) fn of(handler: PageHandler) -> Self {
        Self(Arc::new(handler))
    }

    /// Puts a text at the head of the page and into `status.json`, such as the reason why a rules file was refused. It stays there until
    /// another one about the same subject replaces it, or until [`take_back_notice`](Self::take_back_notice). The text may have several
    /// lines, and nothing in it is read as HTML.
    ///
    /// Operators see the text. Without a [guard](crate::StatusPageBuilder::guard) only its subject and its time are shown, because a line
    /// of a file may be private. There are at most 32 notices at a time, the oldest makes room, and the first 4,096 bytes of a text are
    /// kept. A notice belongs to this instance, and ends with it.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_status::StatusPage;
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Observed::named("notices", MemoryStore::new())?;
    /// let page = StatusPage::new(&store).guard(|_| Some("ada")).secret([7; 32]).host("localhost").build()?;
    ///
    /// page.notice("rules.yaml", "line 3: \"5/mn\" is not a quota, the rules of 14:02 stay in force");
    /// let request = || Request::get("/status.json").header("host", "localhost").body(String::new());
    /// assert!(page.clone().oneshot(request()?).await?.body().contains("is not a quota"));
    ///
    /// // The file is valid again.
    /// page.take_back_notice("rules.yaml");
    /// assert!(page.clone().oneshot(request()?).await?.body().contains(r#""notices":[]"#));
    /// # Ok(())
    /// # }
    /// ```
    pub fn notice(&self, about: impl Into<String>, text: impl Into<String>) {
        self.0.notice(about.into(), text.into());
    }

    /// Takes the [notice](Self::notice) about this subject from the page, if there is one.
    pub fn take_back_notice(&self, about: &str) {
        self.0.take_back_notice(about);
    }
}

impl<B> Service<Request<B>> for StatusPage
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let handler = Arc::clone(&self.0);
        Box::pin(async move { Ok(handler.serve(request).await) })
    }
}

sluicegate_core::debug_as!(StatusPage {});

// The subject of a page: [`Scope`].
//
// Policies are looked up by name each time: policies that are opened, replaced or closed later appear on the page or vanish from
// it without being registered.

/// The stores whose policies a page shows, the limits by which it reads requests, and the waiting rooms.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) stores: Vec<(Observed, Overrides)>,
    pub(crate) limits: Vec<(String, LimitsHandle)>,
    pub(crate) rooms: Vec<Box<dyn Room>>,
}

impl Scope {
    pub(crate) fn add(&mut self, observed: &Observed) {
        self.stores.push((observed.clone(), Overrides::of(observed)));
    }

    /// The handle of this name; if two stores have a policy of one name, the first store's.
    pub(crate) fn limiter(&self, policy: &str) -> Option<RateLimiter> {
        self.stores.iter().find_map(|(observed, _)| limiter(observed, policy))
    }

    /// The forms in which the keys of a policy are written by hand, by the limits that ask it.
    pub(crate) fn key_forms(&self, policy: &str) -> Vec<KeyForm> {
        self.limits.iter().flat_map(|(_, limits)| limits.current().key_forms(policy)).collect()
    }

    /// The overrides of the store that has the policy of this name.
    pub(crate) fn overrides_of(&self, policy: &str) -> Option<&Overrides> {
        let store = self.stores.iter().find(|(observed, _)| limiter(observed, policy).is_some());
        store.map(|(_, overrides)| overrides)
    }

    /// The waiting room of this name.
    pub(crate) fn room(&self, name: &str) -> Option<&dyn Room> {
        self.rooms.iter().find(|room| room.name() == name).map(|room| &**room)
    }

    /// The limits of this name; without a name, the only ones.
    pub(crate) fn limits_of(&self, name: Option<&str>) -> Result<&LimitsHandle, String> {
        match (name, &*self.limits) {
            (None, [(_, only)]) => Ok(only),
            (None, []) => {
                Err("this page knows no limits: add them with limits(..) where it is built".to_owned())
            }
            (None, _) => Err("say which limits the request meets".to_owned()),
            (Some(name), all) => {
                let found = all.iter().find(|(known, _)| known == name).map(|(_, limits)| limits);
                found.ok_or_else(|| format!("no limits named {name:?} are on this page"))
            }
        }
    }
}

fn limiter(observed: &Observed, policy: &str) -> Option<RateLimiter> {
    Arc::<dyn Store>::from(observed).limiters().get(policy)
}

// Moments as text in RFC 3339.
//
// They are always in UTC: operators sit in several zones, and logs and metrics are in UTC, too.

/// Writes a moment in whole milliseconds: `2026-11-21T15:00:00.000Z`.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or_default().max(Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

/// Reads a moment as it is written, in any zone, from the epoch on.
pub(crate) fn read(text: &str) -> Option<SystemTime> {
    let at: Timestamp = text.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH).then(|| at.into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_moment_is_its_date_also_around_leap_days_and_turns_of_centuries() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_795_273_200, "2026-11-21T15:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!((rfc3339(at).as_str(), read(text)), (text, Some(at)));
        }
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_micros(1_234_567)), "1970-01-01T00:00:01.234Z");
        assert_eq!(read("1970-01-01T00:00:01.2Z"), Some(UNIX_EPOCH + Duration::from_millis(1_200)));
        assert_eq!(read("1970-01-01T00:00:01Z"), Some(UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn a_text_that_is_no_moment_is_none() {
        for text in [
            "",
            "soon",
            "2026-11-21",
            "2026-11-21T15:00:00",
            "2026-02-30T15:00:00Z",
            "2026-13-01T15:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T15:00:00.xZ",
            "1969-12-31T23:59:59Z",
            "99999999999999999999-01-01T00:00:00Z",
            "2026-11-21T15:+1:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
