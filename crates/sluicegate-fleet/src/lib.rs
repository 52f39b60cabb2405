//! Stores around stores for a fleet of instances: limits that all of them share, decided at the speed of memory.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `fleet`; use that one.
