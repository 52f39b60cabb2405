//! What clients see: 202 for work that is accepted, and where to ask for it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use sluicegate::{Key, StoreError};

use super::job::{self, Refused};
use super::queue::{Acceptance, Queue, Standing};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Bytes of an API key or an idempotency key.
const LONGEST_KEY: usize = 255;

/// The service: `POST /orders` for later, and `GET /jobs/{id}` by the same API key.
pub(crate) fn app(queue: Arc<Queue>) -> Router {
    Router::new().route("/orders", post(accept)).route("/jobs/{id}", get(ask)).with_state(queue)
}

async fn accept(State(queue): State<Arc<Queue>>, request: Request) -> Result<Response, Problem> {
    let owner = owner(request.headers())?;
    let once = idempotency_key(request.headers())?;
    let request = job::read(request, queue.settings.most_body, &queue.settings.kept).await?;
    let (status, id) = match queue.accept(&owner, once.as_deref(), &request).await? {
        Acceptance::Accepted(id) | Acceptance::Repeated(id) => (StatusCode::ACCEPTED, id),
        Acceptance::Other => {
            let problem = "another request had this Idempotency-Key: use a new one for each";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, problem));
        }
        Acceptance::Full => {
            let problem = "too many jobs wait already, and this one was not accepted: try again later";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem));
        }
    };
    let place = HeaderValue::try_from(format!("/jobs/{id}")).expect("an id is plain");
    Ok((status, [(LOCATION, place)], json_of(&json!({ "id": id, "state": "waiting" }))).into_response())
}

/// Nobody learns of a job that is another's: no owner, no job, and none any longer are the same answer.
async fn ask(
    State(queue): State<Arc<Queue>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let owner = owner(&headers)?;
    Ok(match queue.ask(&owner, &id).await? {
        None => return Err(Problem::new(StatusCode::NOT_FOUND, "there is no such job")),
        Some(Standing::Waiting) => {
            let again = [(RETRY_AFTER, HeaderValue::from_static("1"))];
            (again, json_of(&json!({ "id": id, "state": "waiting" }))).into_response()
        }
        Some(Standing::Parked) => json_of(&json!({ "id": id, "state": "parked" })).into_response(),
        Some(Standing::Done(result)) => {
            let result = String::from_utf8_lossy(&result);
            json_of(&json!({ "id": id, "state": "done", "result": result })).into_response()
        }
    })
}

/// A service that knows its users takes them from its authentication: here, an API key is as good as its owner keeps it.
fn owner(headers: &HeaderMap) -> Result<Key, Problem> {
    let key = only(headers, &API_KEY)?;
    let problem = || Problem::new(StatusCode::UNAUTHORIZED, "send your API key in x-api-key");
    key.map(Key::from).ok_or_else(problem)
}

/// `Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"`, with or without the quotes that its draft asks for.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = only(headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    Ok(Some(inner.to_owned()))
}

/// The text of a field that is there once, and not empty.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let problem = || Problem::new(StatusCode::BAD_REQUEST, format!("{name} is there more than once"));
        return if headers.contains_key(name) { Err(problem()) } else { Ok(None) };
    };
    match value.to_str().map(str::trim) {
        Ok(text) if (1..=LONGEST_KEY).contains(&text.len()) => Ok(Some(text)),
        _ => {
            let problem = format!("{name} has {} bytes: use 1 to {LONGEST_KEY} of plain text", value.len());
            Err(Problem::new(StatusCode::BAD_REQUEST, problem))
        }
    }
}

fn json_of(value: &Value) -> impl IntoResponse + use<> {
    let fields = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (fields, value.to_string())
}

/// A refusal, as problem details (RFC 9457).
struct Problem(Refused);

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self((status, detail.into()))
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self(refused)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let hint = "repeat it with the same Idempotency-Key: it may have been accepted";
        let detail = if error.may_have_spent() { hint } else { "nothing was accepted: try again later" };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self((status, detail)) = self;
        let title = status.canonical_reason().unwrap_or("Refused");
        let body =
            json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
        let fields = [(CONTENT_TYPE, "application/problem+json"), (CACHE_CONTROL, "no-store")];
        let mut response = (status, fields, body.to_string()).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}
