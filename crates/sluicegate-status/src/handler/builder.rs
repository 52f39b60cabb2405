//! The settings of a page: [`StatusPageBuilder`].

use std::borrow::Cow;
use std::fmt;

use sluicegate_core::ConfigError;
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_observed::Observed;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::LimitsHandle;
use sluicegate_tower::room::Room;

use crate::document::{Notices, RoomEvents};
use crate::handler::PageHandler;
use crate::page::{Scope, StatusPage};
use crate::secret::Secret;
use crate::secret::{Guard, Hosts, Origin};

/// Collects the settings of a [`StatusPage`]; [`build`](Self::build) reports mistakes.
///
/// A page is [guarded](Self::guard) or [read-only](Self::unguarded_and_read_only), and there is no default. A guarded page needs a
/// [`secret`](Self::secret), and the [`origin`](Self::origin) or [`host`](Self::host) under which browsers find it:
///
/// ```
/// use sluicegate_core::MemoryStore;
/// use sluicegate_observed::Observed;
/// use sluicegate_status::StatusPage;
///
/// let store = Observed::named("safe", MemoryStore::new())?;
/// let unsafe_page = StatusPage::new(&store).guard(|_| Some("ada")).build();
/// assert!(unsafe_page.unwrap_err().to_string().contains("call origin(\"https://ops.example.org\")"));
///
/// let too_short = StatusPage::new(&store).guard(|_| Some("ada")).origin("https://ops.example.org").secret("hunter2");
/// assert!(too_short.build().unwrap_err().to_string().contains("a secret of 7 bytes can be guessed"));
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
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
    /// Begins a page about a store and its policies: those that are open on it now, and those that are opened or replaced later.
    ///
    /// The store must be observed, because the page shows its counts; stores around or within it, such as a `Resilient` store, report to
    /// it.
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
    /// Adds another store: its policies are on the page as well. If two policies have one name, the first store's is shown.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_status::StatusPage;
    ///
    /// // For example limits of clients on Redis, and limits of outgoing calls in memory.
    /// let (clients, partners) = (MemoryStore::new(), MemoryStore::new());
    /// let (clients, partners) = (Observed::named("clients", clients)?, Observed::named("partners", partners)?);
    /// let page = StatusPage::new(&clients).and(&partners).unguarded_and_read_only().build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn and(mut self, observed: &Observed) -> Self {
        self.scope.add(observed);
        self
    }

    /// Adds limits under a name, so that keys can be looked up by a request to these limits:
    /// [`layer.limits_handle()`](sluicegate_tower::RateLimitLayer::limits_handle).
    ///
    /// A look-up then asks the extractors of those limits, with their trusted proxies, tiers and conditions, so that operators need not know how
    /// a key is composed. Limits that are replaced in the layer are replaced here. Without any, keys are looked up by policy and text.
    ///
    /// ```
    /// use sluicegate_observed::Observed;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_status::StatusPage;
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let store = Observed::named("by-request", MemoryStore::new())?;
    /// let login = RateLimitLayer::new(Policy::gcra("login", "5/min").on(&store)?);
    /// let search = RateLimitLayer::new(Policy::gcra("search", "10/s").on(&store)?);
    /// let page = StatusPage::new(&store)
    ///     .limits("login", login.limits_handle())
    ///     .limits("search", search.limits_handle())
    ///     .unguarded_and_read_only()
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn limits(mut self, name: impl Into<String>, limits: LimitsHandle) -> Self {
        self.scope.limits.push((name.into(), limits));
        self
    }

    /// Adds a waiting room, such as a `WaitingRoom` of the feature `overflow`: its rate and its mode, the number of waiting visitors and
    /// their wait. Operators set the rate, pause the room and open it while visitors wait.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_overflow::WaitingRoom;
    /// use sluicegate_overflow::line::MemoryLine;
    /// use sluicegate_status::StatusPage;
    ///
    /// let store = Observed::named("with-a-room", MemoryStore::new())?;
    /// let sale = WaitingRoom::builder("sale", "1000/s").build(MemoryLine::new())?;
    /// let page = StatusPage::new(&store).room(sale.clone()).unguarded_and_read_only().build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn room(mut self, room: impl Room) -> Self {
        self.scope.rooms.push(Box::new(room));
        self
    }

    /// Lets in requests for which `who_may` names the operator; the name is in events and logs. Other requests get 403.
    ///
    /// It reads the head of a request, so a layer in front has to ask for passwords and put a name into the extensions. A guarded page
    /// needs a [`secret`](Self::secret), and a [`host`](Self::host) or [`origin`](Self::origin).
    ///
    /// It is called for every request to the page, including the style sheet, and before anything else is read. It must not block, and
    /// each name should belong to one person or one program, because a token is valid for one name.
    ///
    /// # A layer that knows who it is
    /// ```
    /// use axum::Router;
    /// use axum::extract::Request;
    /// use axum::http::StatusCode;
    /// use axum::middleware::{Next, from_fn};
    /// use axum::response::{IntoResponse, Response};
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_status::StatusPage;
    ///
    /// /// The user who has logged in.
    /// #[derive(Clone)]
    /// struct Operator(String);
    ///
    /// /// Stands for a session, a token of your identity provider, or a client certificate.
    /// async fn log_in(mut request: Request, next: Next) -> Response {
    ///     if request.headers().get("authorization").is_none_or(|found| found != "Bearer from-the-vault") {
    ///         return StatusCode::UNAUTHORIZED.into_response();
    ///     }
    ///     request.extensions_mut().insert(Operator("ada".to_owned()));
    ///     next.run(request).await
    /// }
    ///
    /// let store = Observed::named("logged-in", MemoryStore::new())?;
    /// let page = StatusPage::new(&store)
    ///     .guard(|request| Some(request.extensions.get::<Operator>()?.0.clone()))
    ///     .secret([7; 32])
    ///     .origin("https://ops.example.org")
    ///     .build()?;
    /// let app: Router = Router::new().nest_service("/status", page).layer(from_fn(log_in));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # A proxy that knows who it is
    /// Read the header field that it writes, as the [crate's example](crate) does, and only if clients cannot bypass the
    /// proxy: otherwise a client can write any name into it. The proxy has to remove the field from client requests.
    ///
    /// # By the client's address
    /// Behind a proxy, the peer's address is the proxy's, even on the same machine. So name the proxies; a client whose address
    /// they do not pass on is not let in:
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_status::StatusPage;
    /// use sluicegate_tower::ClientIp;
    /// use sluicegate_tower::key::Networks;
    ///
    /// let store = Observed::named("from-the-office", MemoryStore::new())?;
    /// let office = ClientIp::behind("127.0.0.1")?.within(Networks::new("192.0.2.0/24")?);
    /// let page = StatusPage::new(&store)
    ///     .guard(move |request| office(request).then_some("the office"))
    ///     .secret([7; 32])
    ///     .origin("https://ops.example.org")
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// For one machine there is [`only_from_this_machine`](Self::only_from_this_machine).
    pub fn guard<N: Into<String>>(
        mut self,
        who_may: impl Fn(RequestView<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        self.guard = Some(Guard::Who(Box::new(move |request| who_may(request).map(Into::into))));
        self
    }

    /// A [guard](Self::guard) that lets in connections from this machine, as `local`: for an example, or behind a tunnel.
    ///
    /// A proxy on this machine connects from here, too, for clients from anywhere. A request with a field that proxies add, such as
    /// `X-Forwarded-For`, `Forwarded` or `Via`, or of HTTP/1.0, is refused. **A proxy that adds none of these lets everyone in**, which is
    /// logged as a warning when the page is built. Behind a proxy, use the client's address or name, as [`guard`](Self::guard) shows.
    ///
    /// A browser on this machine also connects from here, for every site that it shows; token, origin and host keep those sites out.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_status::StatusPage;
    ///
    /// let store = Observed::named("here", MemoryStore::new())?;
    /// let page = StatusPage::new(&store).only_from_this_machine().secret([7; 32]).host("127.0.0.1").build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn only_from_this_machine(mut self) -> Self {
        self.guard = Some(Guard::ThisMachine);
        self
    }

    /// Lets everyone in, to read numbers: keys are digests, and nothing can be looked up or changed. It answers under every
    /// [host](Self::host), unless some are named.
    ///
    /// Names of policies, quotas, rates and events are public then, and so are the names of operators in events. A digest reveals no key,
    /// but anyone who knows a key can recognize its digest.
    pub fn unguarded_and_read_only(mut self) -> Self {
        self.guard = Some(Guard::ReadOnly);
        self
    }

    /// Sets the secret that signs the forms of a guarded page: at least 32 random bytes, the same for all instances, so that a form may be
    /// sent to another instance than the one that rendered it. A form lasts an hour.
    ///
    /// A form carries a token: the moment at which it ends, and a keyed hash of this moment and the operator's name. It also carries keys
    /// as sealed words, so that a button can act on a key that the page shows as a digest. There are no sessions, so a restart logs
    /// no operator out, and a new instance accepts the forms of the others.
    ///
    /// Changing the secret invalidates all forms and words at once; pages have to be loaded again, and nothing is lost. Take it from a vault or a
    /// file, not from the code:
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    /// use sluicegate_status::StatusPage;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let file = std::env::temp_dir().join(format!("status-secret-{}", std::process::id()));
    /// # std::fs::write(&file, [9; 32])?;
    /// // head -c 32 /dev/urandom > status-secret
    /// let secret = std::fs::read(&file)?;
    /// let store = Observed::named("shared-secret", MemoryStore::new())?;
    /// let page = StatusPage::new(&store).guard(|_| Some("ada")).secret(secret).host("localhost").build()?;
    /// # std::fs::remove_file(&file)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Adds an origin under which browsers load the page, such as `https://ops.example.org`; the page answers for its host. Forms of browsers
    /// that do not send `Sec-Fetch-Site`, and of programs, name it in the header `Origin`.
    ///
    /// Scheme, host and port count, as browsers write them: no path, and no default port of the scheme. Behind a TLS proxy it
    /// is the `https` origin.
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Adds a host that requests may name, with any port. Requests that name another host get 421, so that a foreign name that resolves to
    /// this server cannot read the page.
    ///
    /// Without TLS and not on `localhost`, browsers send no `Sec-Fetch-Site` with a form: then name the [`origin`](Self::origin).
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    sluicegate_core::setters! {
        /// Sets the name of this instance on the page. Default: the environment variable `HOSTNAME`, or `this instance`. Behind a balancer it
        /// identifies the instance; each load of the page may come from another one.
        instance(name: impl Into<String>) => Some(name.into());

        /// Sets the clock for the expiry of forms and the dates of notices. Default: [`SystemClock`]. Stores have clocks of their own.
        clock(clock: impl Clock) => Box::new(clock);
    }

    /// Checks the settings and makes the page.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Layer`] for a missing guard, a guard without secret or host, a secret of less than 32 bytes, an invalid origin
    /// or host, or two limits or two rooms with one name. The message says what to write.
    pub fn build(self) -> Result<StatusPage, ConfigError> {
        let guard = self.guard.ok_or_else(|| {
            mistake("a status page without a guard: call guard(..) with who may see it, or unguarded_and_read_only()")
        })?;
        distinct("limits", self.scope.limits.iter().map(|(name, _)| &**name))?;
        distinct("waiting rooms", self.scope.rooms.iter().map(|room| room.name()))?;
        let mut hosts = Hosts::default();
        self.hosts.iter().try_for_each(|host| hosts.add(host))?;
        let mut origins = Vec::new();
        for origin in &self.origins {
            let (origin, authority) = Origin::read(origin)?;
            hosts.add(authority.as_str())?;
            origins.push(origin);
        }
        let is_guarded = !matches!(guard, Guard::ReadOnly);
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
        if matches!(guard, Guard::ThisMachine) {
            tracing::warn!(
                "the status page lets in whoever connects from this machine, and so every client of a proxy here that adds no \
                 field such as X-Forwarded-For: behind a proxy, use guard(..) by the client's address or name"
            );
        }
        let instance =
            self.instance.or_else(|| std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()));
        Ok(StatusPage::of(PageHandler {
            scope: self.scope,
            guard,
            secret,
            origins,
            hosts,
            instance: instance.unwrap_or_else(|| "this instance".to_owned()),
            clock: self.clock,
            notices: Notices::default(),
            room_events: RoomEvents::default(),
        }))
    }
}

/// Refuses two things of one kind that have the same name.
fn distinct<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), ConfigError> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(mistake(format!("two {kind} named {:?}: give each a name of its own", twice[0]))),
        None => Ok(()),
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
