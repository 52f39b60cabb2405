//! The format of the lines of a log: [`Format`].

pub(in crate::read) mod entry;
mod json;
mod template;
pub(crate) mod time;

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use self::entry::LogEntry;
use self::template::{COMBINED, COMMON, Template};
use self::time::TimeReader;

/// The format of the lines of a log. It is read from `combined`, `common`, `json`, or an nginx `log_format`.
///
/// ```
/// use sluicegate_replay::Format;
///
/// let format: Format = r#"$msec $request_time $remote_addr "$request" $http_x_api_key"#.parse()?;
/// assert!(format.knows_arrival());
/// assert!("$request".parse::<Format>().is_err()); // no line would have a time
/// # Ok::<(), String>(())
/// ```
///
/// | in a `log_format` | is |
/// |---|---|
/// | `$remote_addr`, `$realip_remote_addr` | the address of the peer, with or without a port; `unix:` is none |
/// | `$msec`, `$time_iso8601`, `$time_local` | the time; the finest one present counts |
/// | `$request_time` | the duration in seconds, which is subtracted from `$msec` |
/// | `$request` | method, URL and version |
/// | `$request_method`, `$request_uri`, `$uri`, `$document_uri` | the parts of `$request` |
/// | `$args`, `$query_string` | the query, if the URL has none |
/// | `$status` | the status of the response |
/// | `$host`, `$http_NAME` | a header field, `-` if it was missing |
/// | any other | is ignored |
///
/// There must be some text between two variables; a variable in quotes ends at the first quote that is not escaped.
///
/// Lines of `json` are objects with the names that nginx, Caddy, Traefik and others give to these parts: `msec`, `ts`, `time`,
/// `@timestamp`; `remote_addr`, `remote_ip`, `client_ip`; `request`, or `method` and `uri`; `status`; `http_NAME`, or an object of
/// `headers`. Names of an inner object `request` count if the outer one has none.
#[derive(Clone, Debug)]
pub struct Format(FormatKind);

#[derive(Clone, Debug)]
enum FormatKind {
    Template(&'static str, Template),
    Json,
}

impl Format {
    /// The format that fits most of these lines, if any fits.
    pub(crate) fn guess<'a>(lines: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let known = ["common", "combined", "json"].iter().filter_map(|name| name.parse::<Self>().ok());
        let mut clock = TimeReader::default();
        let counted = known.map(|format| {
            (lines.clone().filter(|line| format.parse(line, &mut clock).is_ok()).count(), format)
        });
        let (count, format) = counted.max_by_key(|(count, _)| *count)?;
        (count > 0).then_some(format)
    }

    /// Returns the format without a look at header fields of these names.
    pub(crate) fn without(self, unread: &[HeaderName]) -> Self {
        Self(match self.0 {
            FormatKind::Template(name, template) => FormatKind::Template(name, template.without(unread)),
            FormatKind::Json => FormatKind::Json,
        })
    }

    /// Takes a line apart, or says why it cannot.
    pub(in crate::read) fn parse<'a>(
        &self,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<LogEntry<'a>, &'static str> {
        let mut entry = LogEntry::default();
        self.fill(&mut entry, line, clock).map(|()| entry)
    }

    /// Takes a line apart into a new entry in place: an entry is large, and returning it copied it twice for each line.
    #[inline]
    pub(in crate::read) fn fill<'a>(
        &self,
        entry: &mut LogEntry<'a>,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<(), &'static str> {
        match &self.0 {
            FormatKind::Template(_, template) => template.fill(entry, line, clock),
            FormatKind::Json => json::parse(line).map(|read| *entry = read),
        }
    }

    /// The moment when the request of a line came, in microseconds; `None` for a line that is not understood.
    pub(crate) fn when(&self, line: &[u8]) -> Option<u64> {
        let entry = self.parse(std::str::from_utf8(line).ok()?, &mut TimeReader::default()).ok()?;
        entry.arrival().ok().map(|moment| moment.us)
    }

    /// Whether the beginning of a request is known, from the time of its end and the time that it took. Otherwise it is replayed at the
    /// logged time, which is the end for nginx and the beginning for Apache. With `json` this differs by line, and the outcome says whether
    /// all lines have known beginnings.
    pub fn knows_arrival(&self) -> bool {
        match &self.0 {
            FormatKind::Template(_, template) => template.knows_arrival(),
            FormatKind::Json => false,
        }
    }
}

impl FromStr for Format {
    type Err = String;

    /// # Errors
    /// When a `log_format` has no time or no URL.
    fn from_str(text: &str) -> Result<Self, String> {
        let template = |name, text: &str| {
            Template::read(text).map(|template| Self(FormatKind::Template(name, template)))
        };
        match text {
            "combined" => template("combined", COMBINED),
            "common" => template("common", COMMON),
            "json" => Ok(Self(FormatKind::Json)),
            text if text.contains('$') => template("log_format", text),
            other => Err(format!(
                "{other:?} is not a format: use combined, common, json, or nginx's log_format, such as '$remote_addr [$time_local] \"$request\"'"
            )),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            FormatKind::Template(name, _) => name,
            FormatKind::Json => "json",
        })
    }
}
