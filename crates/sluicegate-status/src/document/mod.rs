//! Everything that the page shows, as data: `status.json` says it, and the page is drawn from the same.
//!
//! So page and JSON cannot disagree. Some fields are drawn only, such as a quota as people write it; they are left out of the JSON,
//! whose [shape](crate#statusjson) is a promise.
//!
//! How much of a key is shown is decided here, once: in the document of a page without a guard there is no address, no name and no
//! word that stands for a key.

mod gather;
mod policy;
mod shape;

pub(crate) use self::gather::{gather, room_shown};
pub(crate) use self::policy::Keys;
pub(crate) use self::shape::{
    AskerShown, Document, Happened, MinuteShown, NoticeShown, OffenderShown, OverrideShown, PolicyStatus,
    RoomShown, StoreStatus,
};
