//! What clients are told: fields, bodies, gRPC.

mod agreement;
mod bodies;
mod drafts;
mod grpc;
pub(crate) mod header_modes;
mod headers;
mod hidden;
mod later;
mod meter_fields;
mod open_ai;
mod refusals;
mod spread;
mod spring;
mod suspended;
mod upstream;
