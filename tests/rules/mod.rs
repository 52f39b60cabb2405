//! Rules at work: a gateway, reloads under load, files as they are swapped and broken, and signals, over real sockets and in
//! processes of their own.

mod fleet;
mod folder;
mod gateway;
mod load;
mod own;
mod page;
mod replayed;
mod rooms;
mod sighup;
mod swaps;
mod terms;
mod tokens;
