//! Addresses as keys: the peer's, and the client's behind named proxies.

mod address;
mod client;
mod elements;
mod networks;
mod peer;

pub use self::client::{ClientIp, ForwardedFaults, OnMalformed};
pub use self::networks::{IntoNetworks, Networks};
pub use self::peer::{NoPeer, PeerAddr, PeerIp};
