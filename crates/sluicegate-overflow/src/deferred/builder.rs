//! The builder: [`DeferralBuilder`].

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::CONTENT_TYPE;
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_tower::KeyExtractor;

use crate::deferred::deferral::{Deferral, DeferralParts, IDEMPOTENCY_KEY};
use crate::deferred::queue::JobQueue;
use crate::deferred::seal::JobSeals;
use crate::deferred::work::JobLines;

/// Makes a [`Deferral`].
#[must_use = "a builder does nothing until it builds"]
pub struct DeferralBuilder {
    queue: Arc<dyn JobQueue>,
    owner: Arc<dyn KeyExtractor>,
    secret: Vec<u8>,
    other: Option<Vec<u8>>,
    kept: Vec<HeaderName>,
    longest_body: usize,
    jobs_at: String,
}

impl DeferralBuilder {
    pub(super) fn new(queue: Arc<dyn JobQueue>, owner: Arc<dyn KeyExtractor>, secret: &[u8]) -> Self {
        Self {
            queue,
            owner,
            secret: secret.to_vec(),
            other: None,
            kept: vec![CONTENT_TYPE, IDEMPOTENCY_KEY],
            longest_body: 64 * 1024,
            jobs_at: "/jobs".to_owned(),
        }
    }

    /// Sets a second secret, which decrypts jobs and results but encrypts none: the previous secret, or the next one. To change secrets, give all
    /// instances the new one here, then swap the two, and remove the old one when no earlier jobs and results are left.
    /// Default: none.
    pub fn other_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.other = Some(secret.as_ref().to_vec());
        self
    }

    /// Sets the header fields that are kept with a job; all others are dropped, including cookies and credentials. Default: `Content-Type`, and
    /// `Idempotency-Key`, so that the service behind can recognize a job that it has already served.
    pub fn keep_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.kept = names.into_iter().collect();
        self
    }

    /// Sets the most bytes of a body. A request with a longer body gets the limit's refusal. Default: 64 KiB.
    pub fn longest_body(mut self, bytes: usize) -> Self {
        self.longest_body = bytes;
        self
    }

    /// Sets the path under which clients ask for jobs, for `Location`: `/jobs` is `/jobs/{id}`. Default: `/jobs`.
    pub fn jobs_at(mut self, path: impl Into<String>) -> Self {
        self.jobs_at = path.into();
        self
    }

    /// Makes the deferral.
    ///
    /// # Errors
    /// When a secret has less than 16 bytes, or the path does not begin with a slash, ends with one, or is invalid. The error names the
    /// value.
    pub fn build(self) -> Result<Deferral, ConfigError> {
        let Self { queue, owner, secret, other, kept, longest_body, jobs_at } = self;
        let is_path = jobs_at.parse::<http::uri::PathAndQuery>().is_ok_and(|path| path.query().is_none());
        if !is_path || !jobs_at.starts_with('/') || jobs_at.ends_with('/') {
            let problem = format!(
                "{jobs_at:?} is no path for jobs: write one with a slash at its front and none at its end, as /jobs"
            );
            return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
        }
        let seals = JobSeals::new(&secret, other.as_deref())?;
        let lines = JobLines::default();
        Ok(Deferral(Arc::new(DeferralParts { queue, owner, seals, kept, longest_body, jobs_at, lines })))
    }
}

impl fmt::Debug for DeferralBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferralBuilder").field("jobs_at", &self.jobs_at).finish_non_exhaustive()
    }
}
