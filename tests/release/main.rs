//! What a release promises: `./tests/run lint`.

mod api;
