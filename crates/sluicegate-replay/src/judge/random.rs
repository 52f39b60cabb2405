//! Numbers that look random, for tests.

pub(super) struct TestRandom(pub(super) u64);

impl TestRandom {
    /// A number below this one.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
