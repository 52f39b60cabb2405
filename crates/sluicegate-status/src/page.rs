//! The page as a service: [`StatusPage`].

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::desk::Desk;

/// The status page: a service to put wherever it is wanted. Cheap to clone; see the [crate's example](crate).
///
/// | path below the place where it is put | method | what it is |
/// |---|---|---|
/// | `/` | GET | the page; `?theme=light` and `?theme=dark` choose its colours |
/// | `/status.json` | GET | the same numbers as JSON |
/// | `/` | POST, a form | what the page's own forms ask for |
/// | `/keys/look-up`, `/keys/reset`, `/keys/suspend`, `/keys/release`, `/policies/{name}` | POST, JSON | the same for programs |
///
/// # For programs
/// A body such as `{"policy": "login", "key": "203.0.113.9"}` names a key by its text; `{"ref": ".."}` by a word that the
/// page or an answer has given; `{"request": {"limits": "api", "peer": "203.0.113.9", "headers": {"x-api-key": ".."}}}` by a
/// request, whose keys the extractors find, as a live one's. With `"policy"` beside it, one of its keys is meant.
///
/// A key is suspended for as long as `"for"` says, or its policy does.
///
/// `POST /policies/login` with `{"quota": "10/min", "mode": "shadow", "for": "30min"}` puts an override, for an hour unless `"for"` or
/// `"until"` (`2026-11-21T15:00:00Z`) says otherwise, and answers with the policy as it is then.
/// Whoever has seen that one stands sends its `"version"` to replace it, and `"do": "withdraw"` beside it to end it.
///
/// The header `x-status-token` of `GET status.json` is sent back with each POST, by the same visitor and within the hour, and
/// an `origin` that the page knows.
#[derive(Clone)]
pub struct StatusPage(Arc<Desk>);

impl StatusPage {
    pub(crate) fn of(desk: Desk) -> Self {
        Self(Arc::new(desk))
    }

    /// Puts a text at the head of the page and into `status.json`, such as why a rules file was not taken. It stands there until
    /// another one about the same takes its place, or [`take_back_notice`](Self::take_back_notice). It is a text of several lines,
    /// if it has them, and nothing in it is read as HTML.
    ///
    /// Operators see the text. Without a [guard](crate::StatusPageBuilder::guard) only its subject and its time are shown, since
    /// a line of a file may be nobody else's. At most 32 stand at a time, the oldest makes room, and of a text the first 4,096
    /// bytes are kept. A notice is one of this instance, and ends with it.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_core::observed::Observed;
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
    /// // The file is right again.
    /// page.take_back_notice("rules.yaml");
    /// assert!(page.clone().oneshot(request()?).await?.body().contains(r#""notices":[]"#));
    /// # Ok(())
    /// # }
    /// ```
    pub fn notice(&self, about: impl Into<String>, text: impl Into<String>) {
        self.0.notices.put(about.into(), text.into(), self.0.clock.now_us());
    }

    /// Takes the [notice](Self::notice) about this from the page, if there is one.
    pub fn take_back_notice(&self, about: &str) {
        self.0.notices.take_back(about);
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
        let desk = Arc::clone(&self.0);
        Box::pin(async move { Ok(desk.serve(request).await) })
    }
}

impl fmt::Debug for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusPage").finish_non_exhaustive()
    }
}
