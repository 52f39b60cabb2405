//! Shared code of the examples, which are next to this folder.

use std::error::Error;

use tokio::net::TcpListener;

/// The number in an environment variable; without one, the other.
///
/// # Errors
/// When it is not a number from 0 to 65535; the message shows it.
pub fn number(name: &str, otherwise: u16) -> Result<u16, String> {
    let Ok(text) = std::env::var(name) else { return Ok(otherwise) };
    text.parse().map_err(|_| format!("{name} is {text:?}, and must be a number from 0 to 65535"))
}

/// Listens on 127.0.0.1, at the port that the environment variable `PORT` says, or at 3000.
///
/// # Errors
/// When `PORT` is not a port, and when it is taken; the message says what to do.
pub async fn listen() -> Result<TcpListener, Box<dyn Error>> {
    let port = number("PORT", 3000)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    Ok(listener.map_err(|error| {
        format!("cannot listen on 127.0.0.1:{port}: {error}; PORT=3001 chooses another port")
    })?)
}
