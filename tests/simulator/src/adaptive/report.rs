//! Comparisons in words: all of each, or the worst of each scene.

use std::fmt;

use sluicegate_in_flight::adaptive::LimitAlgorithm;

use crate::adaptive::{Compared, Row};

impl fmt::Display for Compared {
    /// Rows of a table in Markdown; [`Compared::HEAD`] is above them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let Row { algorithm, played, goodput, p99, recovered, swing } = row;
            let recovered = recovered.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds} s"));
            writeln!(
                f,
                "| {} | {} | {} | {algorithm} | {:.1} % | {p99:.1} | {recovered} | {:.0} % | {} |",
                self.scene.name,
                self.times.as_str(),
                self.best,
                goodput * 100.0,
                swing * 100.0,
                played.shed,
            )?;
        }
        Ok(())
    }
}

impl Compared {
    /// The head of the table.
    pub const HEAD: &str = "| scene | work | best fixed | limit | goodput | p99 | recovered | swing | shed |\n\
                            |---|---|--:|---|--:|--:|--:|--:|--:|";
}

/// The worst of each scene over all that was compared, as a table in Markdown with a column for each algorithm.
///
/// A cell has the goodput, the 99th percentile, the time to recover where there are steps, and the swing at rest.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "the comparisons are all of it")]
pub struct Summary<'a>(pub &'a [Compared]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<LimitAlgorithm> =
            self.0.first().into_iter().flat_map(|first| &first.rows).map(|row| row.algorithm).collect();
        write!(f, "| scene |")?;
        algorithms.iter().try_for_each(|algorithm| write!(f, " {algorithm} |"))?;
        writeln!(f, "\n|---|{}", "---|".repeat(algorithms.len()))?;
        for scene in self.0.chunk_by(|one, next| one.scene.name == next.scene.name) {
            write!(f, "| {} |", scene[0].scene.about)?;
            for place in 0..algorithms.len() {
                let rows = || scene.iter().map(|compared| &compared.rows[place]);
                let goodput = rows().map(|row| row.goodput).fold(f64::INFINITY, f64::min);
                let [p99, swing] =
                    [|row: &Row| row.p99, |row: &Row| row.swing].map(|of| rows().map(of).fold(0.0, f64::max));
                write!(f, " {:.0} %, {p99:.1}x, ", goodput * 100.0)?;
                if let Some(seconds) = rows().filter_map(|row| row.recovered).max() {
                    write!(f, "{seconds} s, ")?;
                }
                write!(f, "{:.0} % |", swing * 100.0)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
