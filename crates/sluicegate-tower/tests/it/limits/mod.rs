//! Which limits a request has: costs, tiers, choices, exemptions, missing keys; deciding, explaining, swapping.

mod costs;
mod decide;
mod exempt;
mod exempt_async;
mod explain;
mod groups;
mod missing_keys;
mod quotas;
mod select;
mod swap;
mod tiers;
