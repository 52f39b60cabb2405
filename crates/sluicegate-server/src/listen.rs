//! Accepting connections within their bound: [`BoundSocket`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::{ConnectionSettings, ended};
use crate::error::{ServeError, ServeErrorKind};

/// The pause of a listener after it could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    socket: TcpListener,
    address: SocketAddr,
}

impl BoundSocket {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let wrong = |error| {
            ServeError::new(ServeErrorKind::Listen, format!("{address} is not available")).because(error)
        };
        let socket = TcpListener::bind(address).await.map_err(wrong)?;
        let address = socket.local_addr().map_err(wrong)?;
        Ok(Self { socket, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections until the server shuts down, and returns those that are still open.
    pub(crate) async fn serve(self, terms: ConnectionSettings) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        let places = Arc::new(Semaphore::new(terms.bounds.connections));
        let mut is_ending = terms.is_ending.clone();
        loop {
            tokio::select! {
                () = ended(&mut is_ending) => return connections,
                Some(_) = connections.join_next() => {}
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => match Arc::clone(&places).try_acquire_owned() {
                        Ok(place) => {
                            let connection = terms.clone().serve(stream, peer);
                            connections.spawn(async move {
                                connection.await;
                                drop(place);
                            });
                        }
                        Err(_) => turn_away(&mut connections, stream, &terms),
                    },
                    Err(error) => {
                        // The process may have no file descriptor left: it pauses, because it would spin otherwise.
                        tracing::warn!(%error, "a connection cannot be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Answers in HTTP/1.1 and closes. A client of another protocol sees the connection close.
fn turn_away(connections: &mut JoinSet<()>, mut stream: TcpStream, terms: &ConnectionSettings) {
    let text =
        format!("{} connections are open, the most that this server accepts\n", terms.bounds.connections);
    let is_plain = terms.tls.is_none();
    connections.spawn(async move {
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        if is_plain {
            _ = timeout(Duration::from_secs(1), stream.write_all(answer.as_bytes())).await;
        }
    });
}
