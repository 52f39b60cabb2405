//! Putting a page together: [`StatusPageBuilder`].

use std::borrow::Cow;
use std::fmt;

use sluicegate_core::ConfigError;
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::observed::Observed;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::LimitsHandle;

use crate::access::{Guard, Hosts, Origin, Secret};
use crate::desk::Desk;
use crate::notices::Notices;
use crate::page::StatusPage;
use crate::scope::Scope;

/// Collects what a [`StatusPage`] is made of; mistakes are reported by [`build`](Self::build).
#[must_use = "a builder does nothing until `build` is called"]
pub struct StatusPageBuilder {
    scope: Scope,
    guard: Option<Guard>,
    secret: Option<Vec<u8>>,
    origins: Vec<String>,
    hosts: Vec<String>,
    instance: Option<String>,
    clock: Box<dyn Clock>,
}

impl StatusPage {
    /// Begins a page about a store and its policies.
    #[expect(clippy::new_ret_no_self, reason = "there is no page before it is said who may see it")]
    pub fn new(observed: &Observed) -> StatusPageBuilder {
        let mut scope = Scope::default();
        scope.add(observed);
        StatusPageBuilder {
            scope,
            guard: None,
            secret: None,
            origins: Vec::new(),
            hosts: Vec::new(),
            instance: None,
            clock: Box::new(SystemClock::new()),
        }
    }
}

impl StatusPageBuilder {
    /// Adds another store: its policies are on the page as well. Of two policies of one name, the first store's is.
    pub fn and(mut self, observed: &Observed) -> Self {
        self.scope.add(observed);
        self
    }

    /// Adds limits under a name, so that keys can be looked up by a request as they would meet it:
    /// [`layer.limits_handle()`](sluicegate_tower::RateLimitLayer::limits_handle).
    pub fn limits(mut self, name: impl Into<String>, limits: LimitsHandle) -> Self {
        self.scope.limits.push((name.into(), limits));
        self
    }

    /// Lets in those requests of which `who_may` names the operator; the name is in events and logs. The others get 403.
    ///
    /// It looks at the head of a request, so whatever asks for a password is a layer in front that leaves a name in the
    /// extensions. A guarded page needs a [`secret`](Self::secret), and a [`host`](Self::host) or [`origin`](Self::origin).
    pub fn guard<N: Into<String>>(
        mut self,
        who_may: impl Fn(RequestView<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        self.guard = Some(Guard::Who(Box::new(move |request| who_may(request).map(Into::into))));
        self
    }

    /// Lets everybody in, to look at numbers: keys are digests, and nothing can be looked up or changed. It answers under every
    /// [host](Self::host), unless some are named.
    pub fn unguarded_and_read_only(mut self) -> Self {
        self.guard = Some(Guard::ReadOnly);
        self
    }

    /// Signs the forms of a guarded page: at least 32 random bytes, the same for all instances, so that a form may be sent to
    /// another one than its page came from. A form lasts an hour.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Adds an origin that the page has in browsers, such as `https://ops.example.org`; its host is one that the page answers
    /// for. Forms of browsers that do not send `Sec-Fetch-Site`, and of programs, name it in the header `Origin`.
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Adds a host that requests may name, with any port. Requests that name another one get 421, so that no name of somebody
    /// else's that resolves to this server reads the page.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// How this instance is called on the page. Default: the environment variable `HOSTNAME`, or `this instance`.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// By what clock forms grow old. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Checks the settings and makes the page.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Layer`] without a guard, for a guard without secret or host, a secret of less than 32 bytes, an
    /// origin or a host that is none, and two limits of one name. The message says what to write.
    pub fn build(self) -> Result<StatusPage, ConfigError> {
        let guard = self.guard.ok_or_else(|| {
            mistake("a status page without a guard: call guard(..) with who may see it, or unguarded_and_read_only()")
        })?;
        let mut names: Vec<&str> = self.scope.limits.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(mistake(format!("two limits named {:?}: give each a name of its own", twice[0])));
        }
        let mut hosts = Hosts::default();
        self.hosts.iter().try_for_each(|host| hosts.add(host))?;
        let mut origins = Vec::new();
        for origin in &self.origins {
            let (origin, authority) = Origin::read(origin)?;
            hosts.add(authority.as_str())?;
            origins.push(origin);
        }
        let is_guarded = matches!(guard, Guard::Who(_));
        if is_guarded && hosts.is_empty() {
            return Err(mistake(
                "a guarded status page without a host: call origin(\"https://ops.example.org\") or host(\"127.0.0.1\")",
            ));
        }
        let secret = self.secret.as_deref().map(Secret::new).transpose()?;
        if is_guarded && secret.is_none() {
            return Err(mistake(
                "a guarded status page without a secret: call secret(..) with 32 random bytes, the same for all instances",
            ));
        }
        let instance =
            self.instance.or_else(|| std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()));
        Ok(StatusPage::of(Desk {
            scope: self.scope,
            guard,
            secret,
            origins,
            hosts,
            instance: instance.unwrap_or_else(|| "this instance".to_owned()),
            clock: self.clock,
            notices: Notices::default(),
        }))
    }
}

fn mistake(problem: impl Into<Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Layer, problem)
}

impl fmt::Debug for StatusPageBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.scope.limits.iter().map(|(name, _)| name).collect();
        f.debug_struct("StatusPageBuilder").field("limits", &names).finish_non_exhaustive()
    }
}
