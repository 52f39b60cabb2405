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

mod builder;

pub use self::builder::StatusPageBuilder;

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluicegate_core::clock::Clock;

use crate::action::{ActionFault, Done, Face, Input, act, look_up};
use crate::document::{
    Document, Look, LookedUp, Notices, RoomChanged, RoomEvents, STYLE, ShownKeys, Theme, gather, page,
    room_shown, seen,
};
use crate::page::Scope;
use crate::secret::Secret;
use crate::secret::{Guard, Hosts, Origin, Viewer, is_own};

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
            return text(StatusCode::MISDIRECTED_REQUEST, sentence);
        }
        let Some(visitor) = self.guard.visitor((&head).into()) else {
            return text(StatusCode::FORBIDDEN, "this page is for those who run the service");
        };
        let Some(place) = Destination::of(&head.uri) else {
            return text(StatusCode::NOT_FOUND, "there is nothing here: the page is one level up");
        };
        match (head.method.clone(), place) {
            (Method::GET | Method::HEAD, Destination::Page) if asks_for_style(&head.uri) => {
                css([STYLE, sluicegate_plots::STYLE].concat())
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
            (_, Destination::Page) => not_allowed("GET, HEAD, POST"),
            (_, Destination::Json) => not_allowed("GET, HEAD"),
            (_, Destination::Key(_) | Destination::Policy(_) | Destination::Room(_)) => not_allowed("POST"),
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
            (Guard::Who(_) | Guard::ThisMachine, Some(secret)) => ShownKeys::Shown(secret),
            _ => ShownKeys::Digests,
        };
        gather(&self.instance, (&self.scope, &self.notices, &self.room_events), keys)
    }

    /// The document as data. Its token is in a header, because documents are stored and shown, and a token should not be.
    fn json(&self, visitor: &Viewer) -> Response<String> {
        let mut response = json_response(StatusCode::OK, &self.document());
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
        html(status, body)
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
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence);
        };
        let status = StatusCode::OK;
        match (face, self.done((&head, place), (face, body), visitor).await) {
            (Face::Page, Ok((done, input))) => self.led_on(&head.uri, visitor, done, input.sought()),
            (Face::Page, Err(fault)) => {
                let said = FormAnswer { notice: Some(Err(fault.to_string())), found: None };
                self.page(&head.uri, visitor, fault.status, &said)
            }
            (Face::Json, Ok((Done::LookedUp(found) | Done::Acted(_, found), _))) => {
                json_response(status, &found)
            }
            (Face::Json, Ok((Done::Changed(changed), _))) => {
                let mut policies = self.document().policies;
                policies.retain(|policy| changed.policies.contains(&policy.name));
                match &*policies {
                    [policy] => json_response(status, policy),
                    policies => json_response(status, &policies),
                }
            }
            (Face::Json, Ok((Done::RoomChanged(changed), _))) => {
                json_response(status, &self.scope.room(&changed.room).map(room_shown))
            }
            (Face::Json, Err(fault)) => json_response(fault.status, &json!({ "error": fault.to_string() })),
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
            Some(address) => led_to(&address),
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

// Responses, and the header fields that all of them carry.
//
// The policy allows the page only what it needs: its own style sheet, its own forms, and nothing else. If some text were ever drawn
// unescaped, the browser would still run no script and load nothing.

/// It allows no script, no foreign style, no form to another site, no other base address, and no frame around the page.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The header in which clients that send JSON find the token that they send back.
const TOKEN: HeaderName = HeaderName::from_static("x-status-token");

const FIELDS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// A response of the page.
fn answer(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fields = FIELDS.into_iter().chain([(CONTENT_TYPE, kind)]);
    response.headers_mut().extend(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn html(status: StatusCode, body: String) -> Response<String> {
    answer(status, "text/html; charset=utf-8", body)
}

fn css(body: String) -> Response<String> {
    answer(StatusCode::OK, "text/css; charset=utf-8", body)
}

/// Redirects to another address, by a GET.
fn led_to(address: &str) -> Response<String> {
    let mut response = text(StatusCode::SEE_OTHER, "the result is on the page");
    response.headers_mut().extend(HeaderValue::try_from(address).ok().map(|address| (LOCATION, address)));
    response
}

/// A sentence for a client that was not let in, or sent something else.
fn text(status: StatusCode, sentence: &str) -> Response<String> {
    answer(status, "text/plain; charset=utf-8", format!("{sentence}\n"))
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response<String> {
    // The body holds only numbers and text under names, all of which JSON can write.
    answer(status, "application/json", serde_json::to_string(body).unwrap_or_default())
}

fn not_allowed(methods: &'static str) -> Response<String> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, &format!("use {methods} here"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

// The destination of a request: [`Destination`].
//
// The page does not know where it was put. It reads the end of a path, and its links and forms are relative.

/// The destination of a request.
enum Destination {
    Page,
    Json,
    /// An action on a key.
    Key(String),
    /// An action on a policy.
    Policy(String),
    /// An action on a waiting room.
    Room(String),
}

impl Destination {
    /// Reads the end of the path, because a router may or may not have stripped the rest.
    fn of(uri: &Uri) -> Option<Self> {
        let mut segments = uri.path().rsplit('/').filter(|segment| !segment.is_empty());
        match (segments.next(), segments.next()) {
            (None, _) => Some(Self::Page),
            (Some("status.json"), _) => Some(Self::Json),
            (Some(verb), Some("keys")) => Some(Self::Key(verb.to_owned())),
            (Some(name), Some("policies")) => Some(Self::Policy(name.to_owned())),
            (Some(name), Some("rooms")) => Some(Self::Room(name.to_owned())),
            _ => None,
        }
    }
}

/// Whether the request asks for the style sheet. It is a query of the page, so that the page's link to it works wherever the page is put.
fn asks_for_style(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part == "style"))
}

// The result of a form on the page that its browser is redirected to: [`FormResult`].
//
// A form that has done something is answered with a redirect, so that loading the page again sends nothing again. No instance remembers
// the result: the address of the page holds it, sealed, so that neither a history nor a log shows what was typed. A looked-up key is
// looked up again there, each time that the page is loaded.

/// The time for which a page shows the result.
const LASTS_SECONDS: u64 = 3_600;

/// The longest word that is put into an address: proxies accept 8 KiB for the whole address.
const LONGEST: usize = 4_096;

/// The name of the word in the query.
const NAME: &str = "result=";

/// The result of a form.
#[derive(Deserialize, Serialize)]
struct FormResult {
    /// The operator who has sent the form; no other operator sees the result.
    operator: String,
    until_seconds: u64,
    /// A sentence about what was done.
    done: Option<String>,
    /// The key or the request that is looked up.
    sought: Option<Input>,
}

impl FormResult {
    /// The result of a form that was sent now.
    fn new((operator, now_seconds): (&str, u64), done: Option<String>, sought: Option<Input>) -> Self {
        Self { operator: operator.to_owned(), until_seconds: now_seconds + LASTS_SECONDS, done, sought }
    }

    /// The address of the page that shows it, from the address that the form was sent to. If the result is too long for an address, its
    /// sentence goes without the key; `None` for a look-up that is too long.
    fn address(mut self, secret: &Secret, uri: &Uri) -> Option<String> {
        let mut word = self.sealed(secret)?;
        if word.len() > LONGEST && self.done.is_some() {
            self.sought = None;
            word = self.sealed(secret)?;
        }
        let theme = Theme::of(uri).word().map_or_else(String::new, |theme| format!("theme={theme}&"));
        (word.len() <= LONGEST).then(|| format!("?{theme}{NAME}{word}"))
    }

    /// The result in this address, for this operator and at this time.
    fn at(uri: &Uri, secret: &Secret, (operator, now_seconds): (&str, u64)) -> Option<Self> {
        let word = uri.query()?.split('&').find_map(|part| part.strip_prefix(NAME))?;
        let outcome: Self = serde_json::from_slice(&secret.results.unseal(word)?).ok()?;
        (outcome.operator == operator && now_seconds < outcome.until_seconds).then_some(outcome)
    }

    fn sealed(&self, secret: &Secret) -> Option<String> {
        serde_json::to_vec(self).ok().map(|text| secret.results.seal(text))
    }
}
