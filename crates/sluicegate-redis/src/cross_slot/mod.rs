//! One request whose keys live in several hash slots of a Cluster: each slot decides for itself,
//! and all together.
//!
//! A script sees the keys of one slot only, so "all spend or none does" needs several calls:
//!
//! | step | calls | what can go wrong |
//! |---|---|---|
//! | look at all slots | at the same time | a refusal: nothing was spent |
//! | spend, where least is left first | one after the other | another request was faster: give back, and refuse |
//! | report what is certain (charges, refunds) | at the same time | an error is told |
//! | spend what is refused of policies that count it | at the same time, after the answer | its waits do not show it yet |
//!
//! Its spend is *marked* for as long as the request may take: units that may come back in a
//! moment. A slot that refuses only because of marked units of others says so
//! ([provisional](sluicegate_core::store::QuotaStatus::is_provisional)), and the request asks
//! once more, after about as long as it took so far. Otherwise two requests could refuse each
//! other, each for the units that the other gives back. A request in one slot holds none that others wait for, and is answered at
//! once: that it is refused for a moment is part of the answer, so that caches do not keep it.
//!
//! # What it promises
//! Never more is admitted than each quota allows, because each slot spends before the request goes
//! on. A process that dies half way leaves too much spent, never too little. Fairness between slots
//! is not promised: a request with many keys may lose against those with few.
//!
//! # Turns
//! The slot that makes it wait longest is asked first. The others are told when that turn comes,
//! and hold their units until then.

mod decide;
mod give_up;
mod parts;

pub(crate) use self::decide::decide;
