//! Clients in front of a proxy, and the service behind it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::any;
use reqwest::{Client, Response};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::serve::processes::Sluicegate;
use crate::serve::proxies::Proxy;

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
        let app = Router::new().fallback(any(move |uri: Uri| {
            // Relaxed: only the sum is read, when all answers are there.
            counted.fetch_add(1, Ordering::Relaxed);
            let is_there = uri.path() != "/missing";
            async move { (if is_there { StatusCode::OK } else { StatusCode::NOT_FOUND }, "hello") }
        }));
        tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { address, served }
    }

    /// Waits until this number of requests has reached it.
    pub(crate) async fn has_served(&self, requests: usize) {
        while self.served() < requests {
            tokio::task::yield_now().await;
        }
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

/// The status of an answer; 520 for a 200 that is not the service's own.
async fn answer(client: &Client, proxy: SocketAddr) -> u16 {
    let response = get(client, proxy, "/").await;
    match (response.status().as_u16(), response.text().await) {
        (200, Ok(text)) if text != "hello" => 520,
        (status, _) => status,
    }
}

/// The statuses of this number of requests, one after the other.
pub(crate) async fn statuses(client: &Client, proxy: SocketAddr, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(get(client, proxy, "/").await.status().as_u16());
    }
    statuses
}

/// Has all clients send requests at once, until each has got [`REQUESTS`] decisions. Returns the answers of each.
pub(crate) async fn crowd(proxy: SocketAddr) -> Vec<(u8, Statuses)> {
    let mut clients = JoinSet::new();
    for number in 1..=CLIENTS {
        clients.spawn(async move {
            let (client, mut statuses) = (client(number), Statuses::new());
            let decisions =
                |statuses: &Statuses| [200, 429].iter().filter_map(|of| statuses.get(of)).sum::<usize>();
            while decisions(&statuses) < REQUESTS {
                *statuses.entry(answer(&client, proxy).await).or_default() += 1;
            }
            (number, statuses)
        });
    }
    clients.join_all().await
}

/// Changes seven an hour to twelve and kills the server amid the requests of the crowd, starts it again, and checks that each client got
/// its twelve in the end. A request that was answered by an error may have been counted in vain.
pub(crate) async fn amid_a_crowd(
    name: &str,
    serving: &mut Sluicegate,
    rules: &str,
    app: &App,
    proxy: &Proxy,
) {
    let requests = tokio::spawn(crowd(proxy.address));
    app.has_served(100).await;
    serving.change(&rules.replace("7/h", "12/h"));
    app.has_served(200).await;
    serving.kill();
    assert!(!requests.is_finished(), "{name}");
    serving.start();
    let requests = requests.await.unwrap();
    // One who was not among them has twelve once the changed rules are in force.
    let other = client(CLIENTS + 1);
    let mut served = 0;
    while served < 12 {
        served += usize::from(get(&other, proxy.address, "/").await.status() == 200);
    }
    let mut answered_by_errors = 0;
    for (number, mut statuses) in requests {
        let client = client(number);
        let mut status = 200;
        while status != 429 {
            status = answer(&client, proxy.address).await;
            *statuses.entry(status).or_default() += 1;
        }
        let errors: usize = statuses.range(500..).map(|(_, answers)| answers).sum();
        let served = statuses[&200];
        assert!(served <= 12 && served + errors >= 12, "{name}: client {number}: {statuses:?}");
        answered_by_errors += errors;
    }
    assert!(answered_by_errors > 0, "{name}: the server was away amid the requests");
    assert!(app.served() <= 12 * usize::from(CLIENTS + 1), "{name}");
}
