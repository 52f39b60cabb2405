//! Clients behind a named proxy: each has a bucket of its own, and cannot choose another one.
//!
//! ```nginx
//! events {}
//! http {
//!     server {
//!         listen 8080;
//!         location / {
//!             proxy_pass http://127.0.0.1:3000;
//!             # Gives nginx an address of its own even if clients are on the same machine, as here.
//!             proxy_bind 127.0.0.9;
//!             # Appends the client's address to the list that the client sent.
//!             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
//!         }
//!     }
//! }
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::get;
use sluicegate::{ClientIp, Limit, MemoryStore, Policy, RateLimitExt, RateLimitLayer};
use tokio::net::TcpListener;

pub(crate) fn app() -> Result<Router, Box<dyn Error>> {
    let store = MemoryStore::new();

    // Only nginx: every peer with an address named here is trusted. It is usually a network, such as "10.0.0.0/8".
    let client_ip = ClientIp::behind(["127.0.0.9"])?;

    // An IPv6 client has a whole /64, but the owner of a /48 has 65,536 of them: a second limit covers the /48.
    let address = Limit::new(Policy::gcra("address", "5/min").on(&store)?).key(client_ip.clone());
    let site = Limit::new(Policy::gcra("site", "50/min").on(&store)?).key(client_ip.clone().ipv6_prefix(48)?);
    let limits = RateLimitLayer::builder(address).and(site).build()?;

    Ok(Router::new()
        .route("/", get(hello))
        .rate_limit(limits)
        // Added after the limits, so exempt from them.
        .route("/faults", get(faults))
        .with_state(client_ip))
}

async fn hello(State(client_ip): State<ClientIp>, request: Request) -> String {
    match client_ip.address(&request) {
        Some(ip) => format!("hello {ip}\n"),
        None => "hello stranger\n".to_owned(),
    }
}

/// For a metric: more than a few missing fields mean that nginx is not set up as above.
async fn faults(State(client_ip): State<ClientIp>) -> String {
    format!("{:?}\n", client_ip.faults())
}

fn guide(address: SocketAddr) -> String {
    format!(
        "\
Sluicegate behind nginx, on http://{address}: 5 requests a minute for each client, told by X-Forwarded-For.

With nginx on port 8080, set up as this example's source says, however the client lies:

  for i in 1 2 3 4 5 6; do curl -si -H \"X-Forwarded-For: 6.6.6.$i\" http://127.0.0.1:8080/ | grep -iE '^(HTTP|hello)'; done

Without nginx, but from its address, what it would send for two other clients:

  for i in 1 2 3 4 5 6; do curl -si --interface 127.0.0.9 -H \"X-Forwarded-For: 6.6.6.$i, 198.51.100.7\" http://{address}/ | grep -iE '^(HTTP|hello)'; done
  curl --interface 127.0.0.9 -H 'X-Forwarded-For: 2001:db8::17' http://{address}/

Not from its address, and something from its address that it would not send:

  curl -H 'X-Forwarded-For: 6.6.6.6' http://{address}/
  curl --interface 127.0.0.9 -H 'X-Forwarded-For: unknown' http://{address}/
  curl http://{address}/faults

Ctrl-C ends it."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = TcpListener::bind(("127.0.0.1", 3000))
        .await
        .map_err(|error| format!("cannot listen on 127.0.0.1:3000: {error}"))?;
    println!("{}", guide(listener.local_addr()?));
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
