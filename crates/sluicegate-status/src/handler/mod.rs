//! Receives requests, decides who is let in, and answers.
//!
//! ```text
//! request --> host on the list? --> guard: who is it? --> place --+--> GET: page, style sheet, JSON
//!                 421                     403              404    |
//!                                                                 +--> POST: operator? --> own origin? --> body --> token? --> verb
//!                                                                                 403          403      400, 413     403       404
//! ```
//!
//! Each check comes before the data that it protects: a visitor who was not let in learns of no policy, and the body of a visitor who may not
//! act is not read. The token is in the form, so it is checked after the body.
//!
//! A form is answered by a redirect to the page with the result on it, or by the page if nothing was done; JSON is answered by JSON. Both
//! have the same effect; they differ only in how they are read, in `action`, and in how they are answered, here.

mod answer;
mod builder;
mod guard;
mod origin;
mod result;
mod route;

use http::header::HeaderValue;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use serde_json::json;
use sluicegate_core::clock::Clock;

use self::answer::TOKEN;
pub use self::builder::StatusPageBuilder;
use self::guard::{Guard, Viewer};
use self::origin::{Hosts, Origin, is_own};
use self::result::FormResult;
use self::route::{Destination, asks_for_style};
use crate::action::{ActionFault, Done, Face, Input, act, look_up};
use crate::document::{
    Document, Look, LookedUp, Notices, RoomChanged, RoomEvents, STYLE, ShownKeys, Theme, gather, page,
    room_shown, seen,
};
use crate::scope::Scope;
use crate::secret::Secret;

/// The message at the head of a page: the result or the failure of an action, and the status of a key.
#[derive(Default)]
struct FormAnswer {
    notice: Option<Result<String, String>>,
    found: Option<LookedUp>,
}

/// The state of a page.
pub(crate) struct PageHandler {
    /// The stores and limits that it is about.
    scope: Scope,
    /// Decides which visitors may see it.
    guard: Guard,
    /// The secret, which every guarded page has.
    secret: Option<Secret>,
    /// The origins that forms may come from if the browser does not send `Sec-Fetch-Site`.
    origins: Vec<Origin>,
    /// The hosts that it answers for.
    hosts: Hosts,
    /// The name of this instance.
    instance: String,
    /// The clock for the expiry of forms.
    clock: Box<dyn Clock>,
    /// Notices of the application.
    notices: Notices,
    /// The operators' changes to waiting rooms.
    room_events: RoomEvents,
}

impl PageHandler {
    /// Answers any request: a page never fails, so a router in front has no error to handle.
    pub(crate) async fn serve<B: Body>(&self, request: Request<B>) -> Response<String> {
        let (head, body) = request.into_parts();
        if !self.hosts.admit((&head).into()) {
            let sentence =
                "this page does not answer for that host: name it by host(..) where the page is built";
            return answer::text(StatusCode::MISDIRECTED_REQUEST, sentence);
        }
        let Some(visitor) = self.guard.visitor((&head).into()) else {
            return answer::text(StatusCode::FORBIDDEN, "this page is for those who run the service");
        };
        let Some(place) = Destination::of(&head.uri) else {
            return answer::text(StatusCode::NOT_FOUND, "there is nothing here: the page is one level up");
        };
        match (head.method.clone(), place) {
            (Method::GET | Method::HEAD, Destination::Page) if asks_for_style(&head.uri) => {
                answer::css([STYLE, sluicegate_plots::STYLE].concat())
            }
            (Method::GET | Method::HEAD, Destination::Page) => {
                let said = self.result(&head.uri, &visitor).await;
                self.page(&head.uri, &visitor, StatusCode::OK, &said)
            }
            (Method::GET | Method::HEAD, Destination::Json) => self.json(&visitor),
            (
                Method::POST,
                place @ (Destination::Page
                | Destination::Key(_)
                | Destination::Policy(_)
                | Destination::Room(_)),
            ) => self.act((head, place), body, &visitor).await,
            (_, Destination::Page) => answer::not_allowed("GET, HEAD, POST"),
            (_, Destination::Json) => answer::not_allowed("GET, HEAD"),
            (_, Destination::Key(_) | Destination::Policy(_) | Destination::Room(_)) => {
                answer::not_allowed("POST")
            }
        }
    }

    /// Puts a notice of the application.
    pub(crate) fn notice(&self, about: String, text: String) {
        self.notices.put(about, text, self.clock.now_us());
    }

    pub(crate) fn take_back_notice(&self, about: &str) {
        self.notices.take_back(about);
    }

    /// The current document, as far as this visitor may see it.
    fn document(&self) -> Document {
        let keys = match (&self.guard, &self.secret) {
            (Guard::Who(_), Some(secret)) => ShownKeys::Shown(secret),
            _ => ShownKeys::Digests,
        };
        gather(&self.instance, (&self.scope, &self.notices, &self.room_events), keys)
    }

    /// The document as data. Its token is in a header, because documents are stored and shown, and a token should not be.
    fn json(&self, visitor: &Viewer) -> Response<String> {
        let mut response = answer::json(StatusCode::OK, &self.document());
        let token = self.token(visitor).and_then(|token| HeaderValue::try_from(token).ok());
        response.headers_mut().extend(token.map(|token| (TOKEN, token)));
        response
    }

    /// The document as HTML, with the result of a form above it.
    fn page(&self, uri: &Uri, visitor: &Viewer, status: StatusCode, said: &FormAnswer) -> Response<String> {
        let document = self.document();
        let limits: Vec<&str> = self.scope.limits.iter().map(|(name, _)| &**name).collect();
        let body = page(&Look {
            document: &document,
            operator: visitor.operator(),
            token: self.token(visitor).as_deref(),
            limits: &limits,
            theme: Theme::of(uri),
            notice: said.notice.as_ref(),
            found: said.found.as_ref(),
        });
        answer::html(status, body)
    }

    /// The result of the form whose answer led here. A key is looked up anew, because it may have spent since.
    async fn result(&self, uri: &Uri, visitor: &Viewer) -> FormAnswer {
        let (Some(operator), Some(secret)) = (visitor.operator(), &self.secret) else {
            return FormAnswer::default();
        };
        let Some(FormResult { done, sought, .. }) =
            FormResult::at(uri, secret, (operator, self.now_seconds()))
        else {
            return FormAnswer::default();
        };
        let notice = done.map(Ok);
        let Some(sought) = sought else { return FormAnswer { notice, found: None } };
        match look_up(&self.scope, secret, &sought).await {
            Ok(found) => FormAnswer { notice, found: Some(found) },
            Err(fault) => FormAnswer { notice: notice.or_else(|| Some(Err(fault.to_string()))), found: None },
        }
    }

    fn now_seconds(&self) -> u64 {
        self.clock.now_us() / 1_000_000
    }

    /// The token for forms that are loaded now; `None` for visitors who may not act.
    fn token(&self, visitor: &Viewer) -> Option<String> {
        let (Some(name), Some(secret)) = (visitor.operator(), &self.secret) else { return None };
        Some(secret.token(self.now_seconds(), name))
    }

    /// Does what a form or a program asks for, and answers in its format.
    async fn act<B: Body>(
        &self,
        (head, place): (Parts, Destination),
        body: B,
        visitor: &Viewer,
    ) -> Response<String> {
        let Some(face) = Face::of(&head.headers) else {
            let sentence = "send the page's own form, or JSON as application/json";
            return answer::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence);
        };
        let status = StatusCode::OK;
        match (face, self.done((&head, place), (face, body), visitor).await) {
            (Face::Page, Ok((done, input))) => self.led_on(&head.uri, visitor, done, input.sought()),
            (Face::Page, Err(fault)) => {
                let said = FormAnswer { notice: Some(Err(fault.to_string())), found: None };
                self.page(&head.uri, visitor, fault.status, &said)
            }
            (Face::Json, Ok((Done::LookedUp(found) | Done::Acted(_, found), _))) => {
                answer::json(status, &found)
            }
            (Face::Json, Ok((Done::Changed(changed), _))) => {
                let mut policies = self.document().policies;
                policies.retain(|policy| changed.policies.contains(&policy.name));
                match &*policies {
                    [policy] => answer::json(status, policy),
                    policies => answer::json(status, &policies),
                }
            }
            (Face::Json, Ok((Done::RoomChanged(changed), _))) => {
                answer::json(status, &self.scope.room(&changed.room).map(room_shown))
            }
            (Face::Json, Err(fault)) => answer::json(fault.status, &json!({ "error": fault.to_string() })),
        }
    }

    /// Redirects the browser of a form to the page with its result. A look-up that is too long for an address is answered at once.
    fn led_on(&self, uri: &Uri, visitor: &Viewer, done: Done, sought: Input) -> Response<String> {
        let (done, found) = match done {
            Done::LookedUp(found) => (None, Some(found)),
            Done::Acted(done, found) => (Some(done), Some(found)),
            Done::Changed(changed) => (Some(changed.notice), None),
            Done::RoomChanged(changed) => {
                let RoomChanged { room, after, .. } = *changed;
                (Some(format!("{room}: {}", seen(&after))), None)
            }
        };
        let outcome = visitor.operator().map(|operator| {
            FormResult::new((operator, self.now_seconds()), done.clone(), found.as_ref().map(|_| sought))
        });
        let address =
            outcome.zip(self.secret.as_ref()).and_then(|(outcome, secret)| outcome.address(secret, uri));
        match address {
            Some(address) => answer::led_to(&address),
            None => self.page(uri, visitor, StatusCode::OK, &FormAnswer { notice: done.map(Ok), found }),
        }
    }

    /// Does the action, if all conditions hold. A request that gets an error changes nothing, unless the store did not answer.
    async fn done<B: Body>(
        &self,
        (head, place): (&Parts, Destination),
        (face, body): (Face, B),
        visitor: &Viewer,
    ) -> Result<(Done, Input), ActionFault> {
        let forbidden = |problem: &str| ActionFault::new(StatusCode::FORBIDDEN, problem);
        let (Some(operator), Some(secret)) = (visitor.operator(), &self.secret) else {
            return Err(forbidden("this page is read-only: nothing can be looked up or changed here"));
        };
        if !is_own(&head.headers, &self.origins) {
            return Err(forbidden(
                "this was not sent by the page itself: name its origin by origin(..) where it is built",
            ));
        }
        let mut input = Input::read(face, body).await?;
        let by_header = head.headers.get(TOKEN).and_then(|token| token.to_str().ok());
        let token = by_header.or(input.token.as_deref()).unwrap_or_default();
        if !secret.admits(self.now_seconds(), operator, token) {
            return Err(forbidden(
                "the form has no token of this page, or is older than an hour: load the page again",
            ));
        }
        match place {
            Destination::Key(verb) => input.verb = Some(verb),
            Destination::Policy(name) => {
                input.policy = Some(name);
                input.verb.get_or_insert_with(|| "change".to_owned());
            }
            Destination::Room(name) => {
                input.room = Some(name);
                input.verb = Some("change-room".to_owned());
            }
            Destination::Page | Destination::Json => {}
        }
        let done = act(&self.scope, secret, operator, &input).await?;
        if let Done::RoomChanged(changed) = &done {
            self.room_events.add(changed, operator, self.clock.now_us());
        }
        Ok((done, input))
    }
}
