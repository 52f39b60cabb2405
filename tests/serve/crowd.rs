//! Clients in front of a proxy, and the service behind it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::any;
use reqwest::{Client, Response};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) const CLIENTS: u8 = 50;
pub(crate) const REQUESTS: usize = 20;

/// How many answers of each status somebody got.
pub(crate) type Statuses = BTreeMap<u16, usize>;

/// A plain service, which counts what reaches it.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    served: Arc<AtomicUsize>,
}

impl App {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, served) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&served);
        let app = Router::new().fallback(any(move || {
            // Relaxed: only the sum is read, when all answers are there.
            counted.fetch_add(1, Ordering::Relaxed);
            async { "hello" }
        }));
        tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { address, served }
    }

    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// One client, with an address of its own.
pub(crate) fn client(number: u8) -> Client {
    Client::builder().local_address(Some([127, 0, 7, number].into())).no_proxy().build().unwrap()
}

pub(crate) async fn get(client: &Client, proxy: SocketAddr, path: &str) -> Response {
    client.get(format!("http://{proxy}{path}")).send().await.unwrap()
}

/// Has all clients send their requests at once, and says which answers each of them got.
pub(crate) async fn crowd(proxy: SocketAddr) -> Vec<(u8, Statuses)> {
    let mut clients = JoinSet::new();
    for number in 1..=CLIENTS {
        clients.spawn(async move {
            let (client, mut statuses) = (client(number), Statuses::new());
            for _ in 0..REQUESTS {
                *statuses.entry(get(&client, proxy, "/").await.status().as_u16()).or_default() += 1;
            }
            (number, statuses)
        });
    }
    clients.join_all().await
}
