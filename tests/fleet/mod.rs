//! Limits that four processes share by real servers: what they admit together, whatever befalls one of them or the server.

mod crowd;
mod faults;
mod instance;
mod permits;
mod soak;
mod steady;
mod stop;
