//! Logs that are replayed: the real one against a slow model, and lines that try to mislead.

mod figures;
mod formats;
mod hostile;
mod model;
mod own;
mod pictures;
mod suggest;
mod support;
mod unusual;
