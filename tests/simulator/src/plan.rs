//! A run's parameters: [`Plan`].

use std::fmt;

use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::{Algorithm, Quota};
use sluicegate_tests::random::Random;

/// A fleet, its load, and what befalls it. Two runs of equal plans are equal to the byte, up to [some 2,000 keys](Self::is_repeatable).
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Everything that is drawn is drawn from this number.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Instances of the service.
    #[arg(long, default_value_t = 50)]
    pub instances: usize,
    /// Regions, each with a part of the instances.
    #[arg(long, default_value_t = 1)]
    pub regions: usize,
    /// Stores around stores: resilient, sharded, regional, leased, deny; their order is fixed.
    #[arg(long, value_delimiter = ',')]
    pub wrap: Vec<Wrapper>,
    /// Requests in all.
    #[arg(long, default_value_t = 100_000)]
    pub requests: u64,
    /// Keys that requests may have.
    #[arg(long, default_value_t = 200)]
    pub keys: usize,
    /// Zipf's exponent: the n-th key comes n^-zipf as often as the first.
    #[arg(long, default_value_t = 1.0)]
    pub zipf: f64,
    /// Demand, as a multiple of all keys' limits together.
    #[arg(long, default_value_t = 1.2)]
    pub load: f64,
    /// The quota of each key.
    #[arg(long, default_value = "20/s")]
    pub quota: Quota,
    /// The algorithm, by the word of rules files.
    #[arg(long, default_value = "gcra")]
    pub algorithm: Algorithm,
    /// Most units of a request; each number up to it is as likely.
    #[arg(long, default_value_t = 1)]
    pub cost: u64,
    /// Limits that a request meets, each with keys of its own.
    #[arg(long, default_value_t = 1)]
    pub asks: usize,
    /// Allowed requests in 1,000 that give back what they spent.
    #[arg(long, default_value_t = 0)]
    pub refunds: u64,
    /// Microseconds to the store, on average, and as many back.
    #[arg(long, default_value_t = 300)]
    pub delay: u64,
    /// Microseconds to the store of another region, on average.
    #[arg(long, default_value_t = 30_000)]
    pub far: u64,
    /// Messages in 1,000 that are lost, of requests and of replies.
    #[arg(long, default_value_t = 0)]
    pub loss: u64,
    /// Clocks run by up to this many millionths too fast or too slow.
    #[arg(long, default_value_t = 0)]
    pub skew: u64,
    /// Instances that crash, and start again within 3 s.
    #[arg(long, default_value_t = 0)]
    pub crashes: usize,
    /// Instances that are closed, and start again within 3 s.
    #[arg(long, default_value_t = 0)]
    pub closes: usize,
    /// Times at which a third of the instances is cut off from the store for up to 3 s.
    #[arg(long, default_value_t = 0)]
    pub partitions: usize,
    /// Times at which an instance stands still for up to 3 s.
    #[arg(long, default_value_t = 0)]
    pub pauses: usize,
    /// Times at which the store forgets everything.
    #[arg(long, default_value_t = 0)]
    pub flushes: usize,
    /// Times at which a replica takes the store's place, which is up to 1 s behind.
    #[arg(long, default_value_t = 0)]
    pub failovers: usize,
    /// Times at which the policies are replaced on all instances, by twice the quota and back.
    #[arg(long, default_value_t = 0)]
    pub replacements: usize,
    /// Keys that are reset by an instance.
    #[arg(long, default_value_t = 0)]
    pub resets: usize,
}

/// A store around a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Wrapper {
    /// Keeps each key in two shards.
    Sharded,
    /// Divides the quota among the regions and a reserve, each on a store of its own.
    Regional,
    /// Decides alone while the store is away.
    Resilient,
    /// Spends units that an instance has leased.
    Leased,
    /// Repeats refusals until their retry.
    Deny,
}

impl Default for Plan {
    /// The plan without arguments, whose requests meet no fault.
    fn default() -> Self {
        let none = Self::parsed(std::iter::empty::<&str>());
        none.expect("each argument has a default")
    }
}

impl Plan {
    /// The plan that these arguments name.
    ///
    /// # Errors
    /// The text of the mistake, as the command prints it.
    pub fn parsed<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        #[derive(clap::Parser)]
        #[command(args_override_self = true)]
        struct Alone {
            #[command(flatten)]
            plan: Plan,
        }
        let arguments = std::iter::once("simulator").chain(arguments);
        let parsed = <Alone as clap::Parser>::try_parse_from(arguments);
        parsed.map(|alone| alone.plan).map_err(|error| error.to_string())
    }

    /// The same fleet with the next seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    /// The same fleet, where everything that is not its size is drawn from the seed: the policy, the load, the network, the
    /// clocks and the faults.
    #[must_use]
    pub fn varied(&self) -> Self {
        let mut random = Random::new(self.seed ^ 0x7661_7269_6564);
        let mut pick = |choices: &[u64]| choices[random.index(choices.len())];
        let quota = if self.has(Wrapper::Sharded) || self.has(Wrapper::Regional) {
            // There is a part of each number for every place.
            [
                "25/s",
                "20/s",
                "40/2s",
                "60/min burst 30",
                "21/s",
                "33/700ms",
                "80/s burst 20",
                "27/3s burst 50",
            ]
        } else {
            ["5/s", "20/s", "10/2s", "60/min burst 10", "1/s", "3/700ms", "40/s burst 4", "7/3s burst 20"]
        };
        let quota = quota[usize::try_from(pick(&[0, 1, 2, 3, 4, 5, 6, 7])).unwrap_or(0)];
        let algorithm = [
            Algorithm::Gcra,
            Algorithm::TokenBucket(Refill::Greedy),
            Algorithm::FixedWindow(Anchor::Epoch),
            Algorithm::SlidingCounter,
        ];
        let algorithm = algorithm[usize::try_from(pick(&[0, 0, 0, 1, 2, 3])).unwrap_or(0)];
        let mut quota: Quota = quota.parse().expect("the quotas above can be read");
        if !matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket(_)) {
            quota = Quota::new(quota.limit(), quota.period());
        }
        Self {
            quota,
            algorithm,
            zipf: pick(&[5, 8, 10, 13]) as f64 / 10.0,
            load: pick(&[5, 9, 12, 30]) as f64 / 10.0,
            cost: pick(&[1, 1, 1, 3]),
            refunds: pick(&[0, 0, 20, 100]),
            delay: pick(&[200, 1_000, 5_000]),
            loss: pick(&[0, 0, 5, 50]),
            skew: pick(&[0, 50, 400]),
            crashes: usize::try_from(pick(&[0, 2, 10])).unwrap_or(0),
            closes: usize::try_from(pick(&[0, 2])).unwrap_or(0),
            partitions: usize::try_from(pick(&[0, 1, 3])).unwrap_or(0),
            flushes: usize::try_from(pick(&[0, 0, 1, 2])).unwrap_or(0),
            resets: usize::try_from(pick(&[0, 0, 10])).unwrap_or(0),
            pauses: usize::try_from(pick(&[0, 0, 5])).unwrap_or(0),
            failovers: usize::try_from(pick(&[0, 0, 1, 2])).unwrap_or(0),
            replacements: usize::try_from(pick(&[0, 0, 1, 3])).unwrap_or(0),
            asks: usize::try_from(pick(&[1, 1, 2, 3])).unwrap_or(1),
            ..self.clone()
        }
    }

    /// Requests per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.load * self.keys as f64 * self.quota.limit() as f64 / self.quota.period().as_secs_f64()
    }

    /// Keys of all limits together.
    #[must_use]
    pub fn all_keys(&self) -> usize {
        self.keys * self.asks
    }

    /// Whether each run is equal to the byte: up to 2,048 keys of all limits together.
    ///
    /// Beyond, keys have to make room for others in the tables of stores, and which ones do is drawn anew in each process.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.all_keys() <= 1 << 11
    }

    /// Whether this store around a store is on.
    #[must_use]
    pub fn has(&self, wrapper: Wrapper) -> bool {
        self.wrap.contains(&wrapper)
    }
}

impl fmt::Display for Plan {
    /// The arguments by which the run is repeated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            instances,
            regions,
            requests,
            keys,
            zipf,
            load,
            quota,
            algorithm,
            cost,
            asks,
            refunds,
            ..
        } = self;
        let Self { delay, far, loss, skew, crashes, closes, partitions, pauses, flushes, .. } = self;
        let Self { failovers, replacements, resets, .. } = self;
        write!(
            f,
            "--seed {seed} --instances {instances} --regions {regions} --requests {requests} --keys {keys}"
        )?;
        let mut wrap = self.wrap.clone();
        wrap.sort_unstable();
        for (index, wrapper) in wrap.iter().enumerate() {
            f.write_str(if index == 0 { " --wrap " } else { "," })?;
            f.write_str(&format!("{wrapper:?}").to_lowercase())?;
        }
        write!(
            f,
            " --zipf {zipf} --load {load} --quota \"{quota}\" --algorithm {algorithm} --cost {cost} --asks {asks}"
        )?;
        write!(
            f,
            " --refunds {refunds} --delay {delay} --far {far} --loss {loss} --skew {skew} --crashes {crashes}"
        )?;
        write!(
            f,
            " --closes {closes} --partitions {partitions} --pauses {pauses} --flushes {flushes} --failovers {failovers}"
        )?;
        write!(f, " --replacements {replacements} --resets {resets}")
    }
}
