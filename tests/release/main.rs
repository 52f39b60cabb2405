//! What has to be so before a release: `./tests/run release`.

mod api;
