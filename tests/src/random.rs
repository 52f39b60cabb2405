//! Numbers that look random, and are the same in each run.

/// SplitMix64: good enough to choose the steps of a trace.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A number from 0, and below 1.
    pub fn fraction(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }

    /// A place in a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

/// Popularity as it is found everywhere: the n-th key comes n^-exponent as often as the first.
pub struct Zipf {
    /// Up to each key, how often they come together.
    sums: Vec<f64>,
}

impl Zipf {
    /// The popularity of this many keys. Takes eight bytes for each.
    #[must_use]
    pub fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self { sums: sums.collect() }
    }

    /// The place of a key, the most popular of which is 0.
    #[must_use]
    pub fn draw(&self, random: &mut Random) -> usize {
        let point = random.fraction() * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1)
    }
}
