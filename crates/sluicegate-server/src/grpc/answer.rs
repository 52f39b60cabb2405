//! The answer to a call: [`DescriptorAnswers`].

use std::time::Duration;

use axum::body::Bytes;
use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::support::Seldom;
use sluicegate_tower::limits::{Limits, Refused};
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::respond::ProblemJson;

use crate::http::CallProblem;

/// The decisions on the descriptors of a call.
pub(super) struct DescriptorAnswers {
    /// One for each descriptor.
    statuses: Vec<DescriptorStatus>,
    /// All decisions as one, if a limit was asked.
    decided: Option<Decided>,
    /// The refusal of a rule without a limit.
    refused: Option<Box<Refused>>,
}

impl DescriptorAnswers {
    /// Nothing is decided yet: a descriptor that no rule limits may pass.
    pub(super) fn of(descriptors: usize) -> Self {
        let free = DescriptorStatus {
            code: Code::Ok.into(),
            limit_remaining: u32::MAX,
            ..DescriptorStatus::default()
        };
        Self { statuses: vec![free; descriptors], decided: None, refused: None }
    }

    /// Whether the request is over a limit.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some() || self.decided.as_ref().is_some_and(|decided| !decided.is_allowed())
    }

    /// Adds the refusal of a rule for the descriptor at this index, whatever was spent.
    pub(super) fn refuse(&mut self, place: usize, refused: Box<Refused>) {
        self.statuses[place] =
            DescriptorStatus { code: Code::OverLimit.into(), ..DescriptorStatus::default() };
        self.refused.get_or_insert(refused);
    }

    /// Adds the decisions of limits; `place` returns the index of the descriptor that a status belongs to.
    pub(super) fn add(&mut self, decided: Decided, place: impl Fn(&QuotaStatus) -> Option<usize>) {
        if decided.is_counted() {
            let mut shown: Vec<Option<&QuotaStatus>> = vec![None; self.statuses.len()];
            for status in decided.quotas() {
                let Some(shown) = place(status).and_then(|place| shown.get_mut(place)) else { continue };
                if shown.is_none_or(|known| is_tighter(status, known)) {
                    *shown = Some(status);
                }
            }
            for (shown, known) in shown.into_iter().zip(&mut self.statuses) {
                if let Some(status) = shown {
                    *known = described(status, &decided);
                }
            }
        } else if !decided.is_allowed() {
            // The policies refuse in an outage.
            self.statuses.iter_mut().for_each(|status| status.code = Code::OverLimit.into());
        }
        self.decided = Some(match self.decided.take() {
            Some(known) => known.merge(&decided),
            None => decided,
        });
    }

    /// The response, with the header fields and the body that these limits write.
    pub(super) fn response(self, limits: &Limits) -> RateLimitResponse {
        let is_refused = self.is_refused();
        let view = Request::new(());
        let respond = |refused: Box<Refused>| refused.respond(&view, &ProblemJson::new());
        let response: Response<Bytes> = match (self.refused, self.decided) {
            (Some(refused), _) => respond(refused),
            (None, Some(decided)) => match limits.conclude(decided, None) {
                Ok(admitted) => admitted.leave(Response::default()),
                Err(refused) => respond(refused),
            },
            (None, None) => Response::default(),
        };
        let fields = response.headers().iter().map(|(name, value)| HeaderValue {
            key: name.as_str().to_owned(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
            ..HeaderValue::default()
        });
        let overall_code = if is_refused { Code::OverLimit } else { Code::Ok };
        RateLimitResponse {
            overall_code: overall_code.into(),
            statuses: self.statuses,
            response_headers_to_add: fields.collect(),
            raw_body: response.into_body().into(),
            ..RateLimitResponse::default()
        }
    }
}

/// The answer to a call that cannot be decided, for this reason.
pub(super) fn over_limit(problem: &str) -> RateLimitResponse {
    static REFUSED: Seldom = Seldom::new();
    if REFUSED.is_due() {
        tracing::warn!("a call over gRPC is refused: {problem}; said once a second");
    }
    let problem = CallProblem::new(StatusCode::TOO_MANY_REQUESTS, problem);
    let content_type = HeaderValue {
        key: CONTENT_TYPE.as_str().to_owned(),
        value: "application/problem+json".to_owned(),
        ..HeaderValue::default()
    };
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        response_headers_to_add: vec![content_type],
        raw_body: problem.json().to_string().into_bytes(),
        ..RateLimitResponse::default()
    }
}

/// Whether a status is tighter for its descriptor than another one.
fn is_tighter(status: &QuotaStatus, known: &QuotaStatus) -> bool {
    match (status.passed(), known.passed()) {
        (true, true) => status.remaining() < known.remaining(),
        (false, false) => status.available_after() > known.available_after(),
        (passed, _) => !passed,
    }
}

fn described(status: &QuotaStatus, decided: &Decided) -> DescriptorStatus {
    let code = if status.passed() { Code::Ok } else { Code::OverLimit };
    let is_shown = decided.policy_of(status).is_some_and(|policy| !policy.is_hidden());
    if !is_shown {
        return DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    }
    DescriptorStatus {
        code: code.into(),
        current_limit: decided.quota_of(status).map(current_limit),
        limit_remaining: clamped(status.remaining()),
        duration_until_reset: Some(duration(status.reset_after())),
        quota: None,
    }
}

fn current_limit(quota: &PolicyQuota) -> RateLimit {
    let (name, quota) = (quota.label().to_owned(), quota.quota());
    let unit = match (quota.period().as_secs(), quota.period().subsec_nanos()) {
        (1, 0) => Unit::Second,
        (60, 0) => Unit::Minute,
        (3_600, 0) => Unit::Hour,
        (86_400, 0) => Unit::Day,
        (604_800, 0) => Unit::Week,
        // The protocol has no word for other periods.
        _ => Unit::Unknown,
    };
    RateLimit { name, requests_per_unit: clamped(quota.limit()), unit: unit.into() }
}

fn clamped(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

fn duration(time: Duration) -> protobuf::Duration {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    protobuf::Duration { seconds, nanos: time.subsec_nanos().cast_signed() }
}
