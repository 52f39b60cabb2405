//! Memory that requests take. A binary beside `it`, since its allocator counts; each test runs in a process of its own, since
//! all threads of a process are counted together.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod plain_path;
mod waiting_memory;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
