//! A running server: [`Server`].

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::connection::ConnectionSettings;
use crate::listen::BoundSocket;
use crate::ready::ask_store;
use crate::tls::Tls;
use crate::{grpc, http};

/// A server whose listeners are open. Made by [`Server::builder`].
pub struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) http: BoundSocket,
    pub(crate) grpc: Option<BoundSocket>,
    pub(crate) tls: Option<Tls>,
    pub(crate) drain: Duration,
    pub(crate) ending: watch::Sender<bool>,
    pub(crate) is_ending: watch::Receiver<bool>,
}

impl Server {
    /// The address of the HTTP listener.
    pub fn http_address(&self) -> SocketAddr {
        self.http.address()
    }

    /// The address of the [gRPC listener](crate::ServerBuilder::grpc), if there is one.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(BoundSocket::address)
    }

    /// Serves until the future `until` is ready. It begins when the store has answered, or after one second. At the end it accepts no more
    /// connections, gives back the turns of waiting requests, answers the requests in progress, gives back leases, and returns when the last
    /// connection is closed or the [drain time](crate::ServerBuilder::drain) is over. Returns the number of connections that were cut off.
    ///
    /// # Cancel safety
    /// Dropping the future cuts off all connections. Turns of waiting requests are given back.
    pub async fn run(self, until: impl Future<Output = ()>) -> usize {
        let Self { app, http, grpc, tls, drain, ending, is_ending, .. } = self;
        let bounds = app.bounds;
        let mut asking = JoinSet::new();
        asking.spawn(ask_store(Arc::clone(&app)));
        // Every task is in a set, so that it ends with this future.
        let mut listeners = JoinSet::new();
        let (rules, store) = (app.rules.clone(), Arc::clone(app.rules.store()));
        let mut until = pin!(until);
        tokio::select! {
            () = until.as_mut() => return 0,
            () = app.ready.first_answer() => {}
        }
        let terms =
            |router| ConnectionSettings { router, tls: tls.clone(), bounds, is_ending: is_ending.clone() };
        if let Some(grpc) = grpc {
            listeners.spawn(grpc.serve(terms(grpc::router(&app))));
        }
        listeners.spawn(http.serve(terms(http::router(app))));
        until.await;
        ending.send_replace(true);
        let latest = Instant::now() + drain;
        let mut cut = 0;
        while let Ok(Some(ended)) = timeout_at(latest, listeners.join_next()).await {
            let Ok(mut open) = ended else { continue };
            while let Ok(Some(_)) = timeout_at(latest, open.join_next()).await {}
            cut += open.len();
        }
        store.limiters().turns_returned(latest.saturating_duration_since(Instant::now())).await;
        let lost = rules.give_back_leases(latest.saturating_duration_since(Instant::now())).await;
        if lost > 0 {
            tracing::warn!("{lost} leased units were not given back: they cannot be spent until they lapse");
        }
        cut
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Server");
        debug.field("http", &self.http_address()).field("grpc", &self.grpc_address()).finish_non_exhaustive()
    }
}
