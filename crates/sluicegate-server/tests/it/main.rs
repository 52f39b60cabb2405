//! A server as its callers meet it, over sockets.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod access;
mod bounds;
mod check;
mod document;
mod ending;
mod examples;
mod grpc;
mod health;
mod pages;
mod proxy;
mod receipts;
mod support;
mod tls;
mod warnings;
