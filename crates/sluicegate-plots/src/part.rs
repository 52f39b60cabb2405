//! The part of a whole: [`part`].

use maud::html;

/// A bar as long as its part of the largest one, in the color of what was `rejected` or `allowed`. A part above nothing is always visible.
/// The number stands beside it, so readers who do not see it miss nothing.
///
/// ```
/// assert!(sluicegate_plots::part(25, 100, "rejected").contains(r#"class="rejected" width="25""#));
/// ```
pub fn part(count: u64, largest: u64, color: &str) -> String {
    let width = u128::from(count) * 100 / u128::from(largest.max(1));
    html! {
        svg.part viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect class=(color) width=(width.clamp(u128::from(count > 0), 100)) height="8" {}
        }
    }
    .into_string()
}
