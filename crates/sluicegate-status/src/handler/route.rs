//! The destination of a request: [`Destination`].
//!
//! The page does not know where it was put. It reads the end of a path, and its links and forms are relative.

use http::Uri;

/// The destination of a request.
pub(super) enum Destination {
    Page,
    Json,
    /// An action on a key.
    Key(String),
    /// An action on a policy.
    Policy(String),
    /// An action on a waiting room.
    Room(String),
}

impl Destination {
    /// Reads the end of the path, because a router may or may not have stripped the rest.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
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

/// Whether the request asks for the style sheet. It is a query of the page, so that the page's link to it works wherever the page is put.
pub(super) fn asks_for_style(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part == "style"))
}
