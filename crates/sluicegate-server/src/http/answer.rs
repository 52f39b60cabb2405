//! Responses of the API: [`HttpReply`].

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sluicegate_core::store::DecidedBy;
use sluicegate_core::support::{ceil_millis, ceil_seconds};
use sluicegate_tower::limits::{Limits, Refused};
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::respond::ProblemJson;

use crate::http::problem::CallProblem;
use crate::receipt::ReceiptToken;

/// Whether the caller may proceed, and the state of the keys.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Answer")]
pub(super) struct CheckAnswer {
    /// Whether the caller may proceed.
    allowed: bool,
    /// The state of each quota that was checked. Empty if no limit applies. Hidden policies are left out.
    limits: Vec<CheckedQuota>,
    /// The source of the decision: `store`, `lease`, `cache`, `fallback`, `outage` or `off`; `none` if no limit applies.
    decided_by: &'static str,
    /// A token to settle the spend or to give it back, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    /// Milliseconds until the receipt expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_expires_in_ms: Option<u64>,
    /// Whole seconds until the same call could be allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// The state of a key under one quota.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Standing")]
struct CheckedQuota {
    /// The policy.
    policy: String,
    /// The name of the quota, as in header fields.
    quota: String,
    /// Units that may be spent at once from rest.
    capacity: u64,
    /// Units that may be spent now.
    remaining: u64,
    /// Milliseconds until the whole capacity is back.
    reset_after_ms: u64,
    /// Milliseconds until the cost fits; if it has fitted, until the next unit is back.
    available_after_ms: u64,
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum HttpReply {
    /// Allowed; with the decision, if a limit applies, and the receipt of a reservation.
    Allowed(Option<Decided>, Option<ReceiptToken>),
    /// Refused.
    Refused(Box<Refused>),
    /// Done, and neither allowed nor refused; with the receipt of the remaining units.
    Reported(Decided, Option<ReceiptToken>),
}

/// The result of a call, or the reason why it was not performed.
pub(super) type Replied = Result<HttpReply, CallProblem>;

impl CheckAnswer {
    /// No limit applies.
    fn without_limits() -> Self {
        Self {
            allowed: true,
            limits: Vec::new(),
            decided_by: "none",
            receipt: None,
            receipt_expires_in_ms: None,
            retry_after: None,
        }
    }

    fn of(decided: Option<&Decided>) -> Self {
        let Some(decided) = decided else { return Self::without_limits() };
        let counted = if decided.is_counted() { decided.quotas() } else { &[] };
        let limits = counted.iter().filter_map(|status| {
            let policy = decided.policy_of(status).filter(|policy| !policy.is_hidden())?;
            Some(CheckedQuota {
                policy: policy.name().to_owned(),
                quota: decided.quota_of(status)?.label().to_owned(),
                capacity: status.capacity(),
                remaining: status.remaining(),
                reset_after_ms: ceil_millis(status.reset_after()),
                available_after_ms: ceil_millis(status.available_after()),
            })
        });
        Self {
            allowed: decided.is_allowed(),
            limits: limits.collect(),
            decided_by: by(decided.decided_by()),
            retry_after: decided.retry_after().map(|wait| ceil_seconds(wait).max(1)),
            ..Self::without_limits()
        }
    }

    fn with_receipt(self, receipt: Option<ReceiptToken>) -> Self {
        let Some(ReceiptToken { text, lifetime }) = receipt else { return self };
        Self { receipt: Some(text), receipt_expires_in_ms: Some(ceil_millis(lifetime)), ..self }
    }

    fn response(&self) -> Response<Body> {
        json_response(StatusCode::OK, "application/json", &serde_json::to_value(self).unwrap_or_default())
    }
}

impl HttpReply {
    /// The response to a single call: 200, or the refusal as a layer with these limits writes it.
    pub(super) fn response(self, limits: &Limits) -> Response<Body> {
        let view = Request::new(());
        match self {
            Self::Allowed(None, receipt) => CheckAnswer::without_limits().with_receipt(receipt).response(),
            Self::Allowed(Some(decided), receipt) => {
                let response = CheckAnswer::of(Some(&decided)).with_receipt(receipt).response();
                match limits.conclude(decided, None) {
                    Ok(admitted) => admitted.leave(response),
                    Err(refused) => refused.respond(&view, &ProblemJson::new()),
                }
            }
            Self::Reported(decided, rest) => CheckAnswer::of(Some(&decided)).with_receipt(rest).response(),
            Self::Refused(refused) => refused.respond(&view, &ProblemJson::new()),
        }
    }

    /// The answer as an item of a batch.
    pub(super) fn json(self) -> Value {
        let (status, answer) = match self {
            Self::Allowed(decided, receipt) => {
                (StatusCode::OK, CheckAnswer::of(decided.as_ref()).with_receipt(receipt))
            }
            Self::Reported(decided, rest) => {
                (StatusCode::OK, CheckAnswer::of(Some(&decided)).with_receipt(rest))
            }
            Self::Refused(refused) => {
                let view = Request::new(());
                let refusal = refused.refusal(&view);
                let status = refusal.status();
                let retry_after = refusal.retry_after_seconds();
                (status, CheckAnswer { allowed: false, retry_after, ..CheckAnswer::of(refusal.decided()) })
            }
        };
        let mut json = serde_json::to_value(answer).unwrap_or_default();
        json["status"] = status.as_u16().into();
        json
    }
}

impl CallProblem {
    /// The problem as an item of a batch.
    pub(super) fn in_batch(&self) -> Value {
        let mut answer = json!({ "status": self.status.as_u16(), "allowed": false, "detail": self.detail });
        if let Some(seconds) = self.retry_after() {
            answer["retry_after"] = seconds.into();
        }
        answer
    }
}

/// The answers of a batch, in the order of its calls.
pub(super) fn batch(answers: Vec<Value>) -> Response<Body> {
    json_response(StatusCode::OK, "application/json", &json!({ "answers": answers }))
}

pub(super) fn json_response(status: StatusCode, media: &'static str, json: &Value) -> Response<Body> {
    response(status, media, json.to_string())
}

pub(super) fn response(status: StatusCode, media: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn by(by: DecidedBy) -> &'static str {
    match by {
        DecidedBy::Store => "store",
        DecidedBy::Lease => "lease",
        DecidedBy::Cache => "cache",
        DecidedBy::Fallback => "fallback",
        DecidedBy::Off => "off",
        _ => "outage",
    }
}
