//! Everything that the page shows, as data: both `status.json` and the page are made from it.
//!
//! So page and JSON cannot disagree. Some fields are only drawn, such as a quota as people write it; they are left out of the JSON, whose
//! [shape](crate#statusjson) is a promise.
//!
//! This is the only place that decides how much of a key is shown: the document of a page without a guard has no address, no name and no
//! word that stands for a key.

mod adaptive;
mod gather;
mod html;
mod look_up;
mod notices;
mod number;
mod policy;
mod room;
mod shape;
mod summary;

pub(crate) use self::gather::{gather, room_shown};
pub(crate) use self::html::{Look, STYLE, Theme, page};
pub(crate) use self::look_up::{LookedUp, by_key, by_request, usual_span};
pub(crate) use self::notices::Notices;
pub(crate) use self::policy::ShownKeys;
pub(crate) use self::room::{RoomChanged, RoomEvents, seen};
pub(crate) use self::shape::Document;
use self::shape::{
    AdaptiveShown, AskerShown, BudgetShown, ByClass, GivenQuotas, GivenShown, Happened, MinuteShown,
    NoticeShown, OffenderShown, OverrideShown, PolicyStatus, RoomShown, SharedShown, ShownStore, Tighter,
};
use self::summary::{NextAction, sentence, steps};
