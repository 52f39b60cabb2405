//! Nothing but a home for the tests in `it/` and the benchmarks in `benches/`.
