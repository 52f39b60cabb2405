//! What the examples have in common that is not what they are about. They lie beside this folder.

use std::error::Error;

use tokio::net::TcpListener;

/// Listens on 127.0.0.1, at the port that the environment variable `PORT` says, or at 3000.
///
/// # Errors
/// When `PORT` is not a port, and when it is taken; the message says what to do.
pub async fn listen() -> Result<TcpListener, Box<dyn Error>> {
    let port = match std::env::var("PORT") {
        Ok(port) => {
            port.parse().map_err(|_| format!("PORT is {port:?}, and must be a number from 0 to 65535"))?
        }
        Err(_) => 3000,
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    Ok(listener.map_err(|error| {
        format!("cannot listen on 127.0.0.1:{port}: {error}; PORT=3001 chooses another port")
    })?)
}
