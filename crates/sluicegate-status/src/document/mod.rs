//! Everything that the page shows, as data: `status.json` says it, and the page is drawn from the same.

mod gather;
mod policy;
mod shape;

pub(crate) use self::gather::gather;
pub(crate) use self::policy::Keys;
pub(crate) use self::shape::{
    AskerShown, Document, Happened, MinuteShown, NoticeShown, OffenderShown, OverrideShown, PolicyStatus,
    StoreStatus,
};
