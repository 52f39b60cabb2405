//! A log as servers write it: addresses by Zipf's law, pages and browsers by far fewer.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use sluicegate_tests::random::Random;

const ADDRESSES: usize = 100_000;
const PER_SECOND: u64 = 250;

/// The log of this many lines, which is written if it is not there.
pub(crate) fn of(lines: u64) -> PathBuf {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench"));
    let path = folder.join(format!("access-{lines}.log"));
    if !path.exists() {
        fs::create_dir_all(&folder).expect("target can be written to");
        // Under another name until all of it is there.
        let part = path.with_extension("part");
        let file = fs::File::create(&part).expect("target can be written to");
        write(lines, BufWriter::with_capacity(1 << 20, file)).expect("there is room for it");
        fs::rename(part, &path).expect("target can be written to");
    }
    path
}

fn write(lines: u64, mut log: impl Write) -> std::io::Result<()> {
    let weights = zipf();
    let mut random = Random::new(14);
    for line in 0..lines {
        let second = line / PER_SECOND;
        let drawn = random.below(weights[ADDRESSES - 1]);
        let address = weights.partition_point(|weight| *weight <= drawn) as u64;
        // Neighbours in the order of traffic are no neighbours in the net.
        let [a, b, c, _] = u32::try_from(address * 40_503 % (1 << 24)).unwrap_or_default().to_le_bytes();
        let (day, hour, minute) = (second / 86_400 + 1, second / 3_600 % 24, second / 60 % 60);
        let status = [200, 200, 200, 304, 404][random.index(5)];
        let browser = random.below(80) + 60;
        writeln!(
            log,
            "{}.{a}.{b}.{c} - - [{day:02}/May/2015:{hour:02}:{minute:02}:{:02} +0000] \"GET /shop-{}/article-{}?page={} HTTP/1.1\" {status} {} \"{}\" \"Mozilla/5.0 (X11; Linux x86_64; rv:{browser}.0) Gecko/20100101 Firefox/{browser}.0\"",
            11 + address % 180,
            second % 60,
            random.below(100),
            random.below(40),
            random.below(9),
            random.below(90_000),
            ["-", "-", "https://www.example.com/", "https://search.example/?q=shop"][random.index(4)],
        )?;
    }
    log.flush()
}

/// Up to each address, how much of the traffic there is.
fn zipf() -> Vec<u64> {
    let mut sum = 0;
    (1..=ADDRESSES as u64)
        .map(|rank| {
            sum += 1_000_000_000 / rank;
            sum
        })
        .collect()
}
