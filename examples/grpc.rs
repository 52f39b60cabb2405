//! A tonic server behind a limit, and a client that is told when to come back. It ends by itself.

use std::error::Error;

use sluicegate::key::HeaderKey;
use sluicegate::respond::GrpcStatus;
use sluicegate::{KeyExtractor, Limit, MemoryStore, Policy, RateLimitLayer};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

fn request(client: &'static str) -> Request<HealthCheckRequest> {
    let mut request = Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("x-client", tonic::metadata::MetadataValue::from_static(client));
    request
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Two calls at once from each client, and one more every ten seconds.
    let per_client = Policy::gcra("client", "6/min burst 2").on(MemoryStore::new())?;
    // Set by a proxy in front that has verified the client. If clients write it themselves, limit their addresses as well.
    let client = HeaderKey::new("x-client")?.verified_before();
    let layer =
        RateLimitLayer::builder(Limit::new(per_client).key(client)).responder(GrpcStatus::new()).build()?;

    // Any service will do; this one reports the health of the server.
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for (number, name) in [(1, "ada"), (2, "ada"), (3, "ada"), (4, "bob")] {
        match client.check(request(name)).await {
            Ok(response) => println!("call {number} by {name}: {:?}", response.into_inner().status()),
            Err(status) => {
                println!("call {number} by {name}: {:?}, {}", status.code(), status.message());
                let wait = status.get_details_retry_info().and_then(|info| info.retry_delay);
                println!("    RetryInfo: {wait:?}");
                for quota in status.get_details_quota_failure().into_iter().flat_map(|q| q.violations) {
                    println!("    QuotaFailure: {}", quota.subject);
                }
                let pushback = status.metadata().get("grpc-retry-pushback-ms");
                println!("    grpc-retry-pushback-ms: {pushback:?}");
                assert_eq!((number, status.code()), (3, Code::ResourceExhausted));
            }
        }
    }
    Ok(())
}
