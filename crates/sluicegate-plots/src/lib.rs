//! The plots of Sluicegate's pages: [`Bars`] over time, and the [`part`] of a whole.
//!
//! This crate draws for the pages of `sluicegate-status`, `sluicegate-replay` and `sluicegate-overflow`, so that they look alike.
//! It is not covered by the stability of `sluicegate`: its names may change with any release.
//!
//! A plot is HTML and SVG without scripts and without its own style, so it works on a page with `default-src 'none'`. It has a scale, times,
//! the value under the pointer, and a table for screen readers. All text is escaped.
//!
//! ```
//! use sluicegate_plots::Bars;
//!
//! let drawn = Bars::new("Requests")
//!     .at(["14:00", "14:02", "14:04"])
//!     .layer("allowed", "allowed", [12, 7, 0].map(Some))
//!     .layer("refused", "rejected", [0, 1, 0].map(Some))
//!     .draw();
//! assert!(drawn.contains("<td class=\"number\" data-label=\"refused\">1</td>"));
//! assert!(drawn.contains("14:02: 7 allowed, 1 refused"));
//! ```
//!
//! # Its style
//! [`STYLE`] goes into the style sheet of the page, which sets the colors `--allowed`, `--rejected`, `--line`, `--quiet`, `--ground` and
//! `--text`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bars;
mod table;

pub use self::bars::{Bars, grouped, outlines, part};
pub use self::table::Table;

/// The style of all plots, for the style sheet of a page.
pub const STYLE: &str = include_str!("style.css");
