//! Other programs write lines of logs into lines of their own: [`Wrapping`].

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::read::format::time::{self, TimeReader};

/// The program that has passed a log on, and the text that it puts around each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wrapping {
    #[default]
    None,
    /// `{"log":"LINE\n","stream":"stdout","time":".."}` of Docker, `MESSAGE` of the journal, and `message` of shippers.
    Json,
    /// `2016-10-06T00:17:09.669794202Z stdout F LINE` of containers in Kubernetes.
    Cri,
    /// `<134>Feb  6 12:12:56 host name: LINE`, and RFC 5424.
    Syslog,
    /// `web-1  | LINE` of `docker compose logs`.
    Compose,
}

impl Wrapping {
    pub(super) const ALL: [Self; 5] = [Self::None, Self::Json, Self::Cri, Self::Syslog, Self::Compose];

    /// The line that is in this one, if it is wrapped so.
    pub(crate) fn unwrap(self, line: &str) -> Option<Cow<'_, str>> {
        match self {
            Self::None => Some(Cow::Borrowed(line)),
            Self::Json => {
                let object: Map<String, Value> = serde_json::from_str(line).ok()?;
                let inner =
                    ["log", "MESSAGE", "message"].iter().find_map(|name| object.get(*name)?.as_str())?;
                Some(Cow::Owned(inner.trim_end().to_owned()))
            }
            Self::Cri => {
                let mut words = line.splitn(4, ' ');
                let (_, stream, whole) = (words.next()?, words.next()?, words.next()?);
                let is_whole = matches!(stream, "stdout" | "stderr") && whole == "F";
                words.next().filter(|_| is_whole).map(Cow::Borrowed)
            }
            Self::Syslog => syslog(line).map(Cow::Borrowed),
            Self::Compose => {
                let (name, inner) = line.split_once("| ")?;
                let is_name = !name.is_empty() && !name.trim_end().contains([' ', '"']);
                is_name.then_some(Cow::Borrowed(inner))
            }
        }
    }
}

/// The message of a line of syslog, by RFC 5424, RFC 3164, or with its time by RFC 3339.
fn syslog(line: &str) -> Option<&str> {
    let (priority, line) = match line.strip_prefix('<').and_then(|line| line.split_once('>')) {
        Some((priority, rest)) => (Some(priority), rest),
        None => (None, line),
    };
    if let Some(rest) = line.strip_prefix("1 ").filter(|_| priority.is_some()) {
        let message = rest.splitn(6, ' ').nth(5)?;
        let message = message.strip_prefix("- ").or_else(|| Some(message.split_once("] ")?.1))?;
        return Some(message.strip_prefix('\u{feff}').unwrap_or(message));
    }
    let (stamp, rest) = match line.get(..3).and_then(time::named_month) {
        Some(_) => line.split_at_checked(15)?,
        None => line.split_at_checked(line.find(' ')?)?,
    };
    let is_stamp = stamp.contains(':') && (stamp.len() == 15 || TimeReader::default().read(stamp).is_some());
    let (sender, message) = rest.strip_prefix(' ')?.split_once(": ")?;
    (is_stamp && sender.split(' ').count() == 2).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_out_of_those_of_other_programs() {
        for (wrapping, line) in [
            (Wrapping::None, "a \"b\" c"),
            (Wrapping::Json, r#"{"log":"a \"b\" c\n","stream":"stdout","time":"2024-02-01T10:00:00Z"}"#),
            (Wrapping::Json, r#"{"MESSAGE":"a \"b\" c","_PID":"7"}"#),
            (Wrapping::Cri, "2016-10-06T00:17:09.669794202Z stdout F a \"b\" c"),
            (Wrapping::Syslog, "Feb  6 12:14:14 localhost nginx[14389]: a \"b\" c"),
            (Wrapping::Syslog, "<134>Feb 16 12:14:14 localhost nginx: a \"b\" c"),
            (Wrapping::Syslog, "2024-02-01T10:00:00.123+01:00 web nginx: a \"b\" c"),
            (Wrapping::Syslog, "<190>1 2024-02-01T10:00:00Z web nginx 7 - - a \"b\" c"),
            (Wrapping::Syslog, "<190>1 2024-02-01T10:00:00Z web nginx 7 - [x y=\"z\"] a \"b\" c"),
            (Wrapping::Compose, "web-1  | a \"b\" c"),
        ] {
            assert_eq!(wrapping.unwrap(line).as_deref(), Some("a \"b\" c"), "{line}");
            let others =
                Wrapping::ALL.into_iter().filter(|other| *other != Wrapping::None && *other != wrapping);
            others.for_each(|other| assert_eq!(other.unwrap(line), None, "{other:?}: {line}"));
        }
        assert_eq!(Wrapping::Cri.unwrap("2016-10-06T00:17:09.669794202Z stdout P a"), None);
    }
}
