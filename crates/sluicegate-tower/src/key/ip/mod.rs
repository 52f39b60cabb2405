//! Addresses as keys: the peer's, and the client's behind named proxies.

mod address;
mod client;
mod elements;
mod faults;
mod forwarded;
mod lists;
mod networks;
mod peer;
mod walk;

pub use self::client::{ClientIp, OnMalformed};
pub use self::faults::ForwardedFaults;
pub use self::networks::{IntoNetworks, Networks};
pub use self::peer::{NoPeer, PeerAddr, PeerIp};
