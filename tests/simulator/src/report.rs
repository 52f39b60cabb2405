//! A run in words.

use std::fmt;

use crate::run::Run;

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, log, .. } = self;
        writeln!(f, "{plan}")?;
        let decisions = log.decisions();
        let seconds = self.lasted_us as f64 / 1e6;
        writeln!(
            f,
            "{decisions} decisions in {seconds:.1} s; {} failed, {} found no instance",
            log.failed, log.unserved
        )?;
        for (by, [allowed, refused]) in &log.decided {
            let part = (allowed + refused) as f64 * 100.0 / decisions.max(1) as f64;
            let wrongly = log.wrongly.get(by).copied().unwrap_or(0);
            let by = format!("{by:?}").to_lowercase();
            writeln!(
                f,
                "  {by:<9} {part:>5.1} %: {allowed} allowed; {refused} refused, {wrongly} while there was room"
            )?;
        }
        let (shared, alone, ideal) = (log.shared_units(), log.alone_units(), log.ideal_units);
        let used = (shared + alone) as f64 / ideal.max(1) as f64;
        writeln!(
            f,
            "{shared} units admitted by what the store knew and {alone} by instances alone; one exact store: {ideal} ({used:.3})"
        )?;
        let trips = self.calls as f64 / decisions.max(1) as f64;
        writeln!(f, "{} calls to the store, {trips:.4} per decision", self.calls)?;
        let held: Vec<u64> = log.slices.iter().filter_map(|slice| slice.held).collect();
        if let Some(most) = held.iter().max() {
            let mean = held.iter().sum::<u64>() / held.len() as u64;
            writeln!(f, "units held by leases: {mean} on average, {most} at most")?;
        }
        let mut ages = log.ages_us.clone();
        ages.sort_unstable();
        if let Some(last) = ages.len().checked_sub(1) {
            let at = |hundredths: usize| ages[last * hundredths / 100] as f64 / 1e3;
            writeln!(
                f,
                "refusals without the store repeat an answer of {:.1} ms before (p99 {:.1}, at most {:.1})",
                at(50),
                at(99),
                at(100)
            )?;
        }
        if self.forgotten > 0 {
            writeln!(f, "{} times a key was forgotten because others needed the room", self.forgotten)?;
        }
        let broken = self.broken(self.law());
        if broken.is_empty() {
            return write!(f, "no key was admitted more than its quota allows");
        }
        write!(f, "BROKEN: {} keys were admitted more than their quota allows", broken.len())?;
        for one in broken.iter().take(5) {
            let by = one.alone.map_or_else(String::new, |instance| format!(" by instance {instance} alone"));
            write!(
                f,
                "\n  key {}{by}: {} units too many, first at {} us",
                one.key, one.excess.units, one.excess.at_us
            )?;
        }
        Ok(())
    }
}
