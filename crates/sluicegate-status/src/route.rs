//! The purpose of a request: its [`Place`], and the [`Verb`] that it sends.
//!
//! The page does not know where it was put. It reads the end of a path, and its links and forms are relative.

use http::Uri;

use crate::action::KeyAction;

/// Where a request goes.
pub(crate) enum Place {
    Page,
    Json,
    /// Something to be done to a key.
    Key(String),
    /// Something to be done to a policy.
    Policy(String),
    /// Something to be done to a waiting room.
    Room(String),
}

impl Place {
    /// By the end of the path, for a router may have cut off the rest, or not.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let mut segments = uri.path().rsplit('/').filter(|segment| !segment.is_empty());
        match (segments.next(), segments.next()) {
            (None, _) => Some(Self::Page),
            (Some("status.json"), _) => Some(Self::Json),
            (Some(verb), Some("keys")) => Some(Self::Key(verb.to_owned())),
            (Some(name), Some("policies")) => Some(Self::Policy(name.to_owned())),
            (Some(name), Some("rooms")) => Some(Self::Room(name.to_owned())),
            _ => None,
        }
    }
}

/// Whether the style sheet is wanted. It is a query of the page, so that the page's link to it holds wherever the page is put.
pub(crate) fn asks_for_style(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part == "style"))
}

/// The action that an operator asks for.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    LookUp,
    Key(KeyAction),
    Change,
    Withdraw,
    AllToShadow,
    ChangeRoom,
}

impl Verb {
    /// As forms and paths name it.
    pub(crate) fn read(word: &str) -> Option<Self> {
        Some(match word {
            "look-up" => Self::LookUp,
            "reset" => Self::Key(KeyAction::Reset),
            "suspend" => Self::Key(KeyAction::Suspend),
            "release" => Self::Key(KeyAction::Release),
            "change" => Self::Change,
            "withdraw" => Self::Withdraw,
            "all-to-shadow" => Self::AllToShadow,
            "change-room" => Self::ChangeRoom,
            _ => return None,
        })
    }
}
