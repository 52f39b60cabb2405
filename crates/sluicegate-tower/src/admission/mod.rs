//! What is decided on a request, and what becomes of it: [`Limits`](set::Limits) without a service.

pub(crate) mod admitted;
pub(crate) mod asked;
pub(crate) mod asks;
pub(crate) mod builder;
pub(crate) mod check;
pub(crate) mod decide;
pub(crate) mod explain;
pub(crate) mod handle;
pub(crate) mod meter;
pub(crate) mod refused;
pub(crate) mod restate;
pub(crate) mod set;
pub(crate) mod shadow;
pub(crate) mod together;
pub(crate) mod trial;
pub(crate) mod way;
