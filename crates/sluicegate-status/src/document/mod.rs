//! Everything that the page shows, as data: `status.json` says it, and the page is drawn from the same.

mod gather;
mod instant;
mod shape;

pub(crate) use self::gather::{Keys, gather};
pub(crate) use self::shape::{
    Document, Happened, MinuteShown, OffenderShown, OverrideShown, PolicyStatus, StoreStatus,
};
