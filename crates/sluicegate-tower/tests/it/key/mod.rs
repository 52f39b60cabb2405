//! Whose bucket a request is: every input that could make one client count as another, or as many.

mod address;
mod configuration;
mod credentials;
mod growth;
mod jwt;
mod jwt_without_backend;
mod kinds;
mod networks;
mod no_peer;
mod parts;
mod peer_warning;
mod properties;
mod route;
mod together;
mod warnings;
