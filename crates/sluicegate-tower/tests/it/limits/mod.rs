//! Which limits a request has: costs, tiers, exemptions, missing keys.

mod costs;
mod exempt;
mod exempt_async;
mod missing_keys;
mod tiers;
