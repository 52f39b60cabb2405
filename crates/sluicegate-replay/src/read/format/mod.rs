//! The format of the lines of a log: [`Format`].

mod field;
mod json;
mod known;
mod template;
pub(crate) mod time;
mod wrapping;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use crate::read::format::json::JsonShape;
use crate::read::format::template::Template;
use crate::read::format::time::TimeReader;

pub(super) use self::field::LogEntry;
pub(crate) use self::wrapping::Wrapping;

/// The format of the lines of a log. It is read from the name of a format that servers write, from nginx's `log_format`, from Apache's
/// `LogFormat`, or from `json` with the places of fields.
///
/// ```
/// use sluicegate_replay::Format;
///
/// let format: Format = r#"$msec $request_time $remote_addr "$request" $http_x_api_key"#.parse()?;
/// assert!(format.knows_arrival());
/// assert!(r#"%h %l %u %t "%r" %>s %b %{ms}T"#.parse::<Format>()?.knows_arrival());
/// assert!("json time=.ts client=.req.ip method=.req.method url=.req.url".parse::<Format>().is_ok());
/// assert!("$request".parse::<Format>().is_err()); // no line would have a time
/// # Ok::<(), String>(())
/// ```
///
/// | name | lines of |
/// |---|---|
/// | `common`, `combined`, `main`, `vhost_combined` | nginx, Apache, and many others |
/// | `combined+` | the same with more fields behind those of `combined`, which are not read |
/// | `ingress-nginx`, `traefik`, `haproxy`, `envoy`, `alb`, `api-gateway`, `uwsgi` | these, as they are set up at first; `envoy` is also that of Istio |
/// | `json` | objects of nginx, Caddy, Traefik, Envoy and Istio, Cloudflare Logpush, Google's load balancers, API Gateway, pino, Fastify, tower-http, and others whose names are as common |
/// | `w3c` | IIS and CloudFront, by the `#Fields` of the log; it is found, and cannot be named |
///
/// | in a `log_format`, and for `json` | is |
/// |---|---|
/// | `client`, `$remote_addr`, `$realip_remote_addr` | the address of the peer, with or without a port; `unix:` and a name are none |
/// | `time`, `$msec`, `$time_iso8601`, `$time_local` | the time in any form; the finest one present counts |
/// | `took`, `$request_time`, `took_ms`, `took_us`, `took_ns` | the duration, in seconds or in this unit, which is subtracted from the time |
/// | `begin` | the time when the request came, which counts before all others |
/// | `day`, `clock` | the time in two fields, in UTC |
/// | `request` | method, URL and version |
/// | `method`, `url`; `$request_method`, `$request_uri`, `$uri`, `$document_uri` | the parts of `request` |
/// | `query`, `$args`, `$query_string` | the query, if the URL has none |
/// | `status` | the status of the response |
/// | `host`, `http_NAME` | a header field, `-` if it was missing |
/// | `headers` | all header fields, as an object of JSON |
/// | `forwarded` | `X-Forwarded-For`, whose last address is the peer where no other field says it |
/// | `rest` | all that follows |
/// | any other | is ignored in a `log_format`, and refused for `json` |
///
/// There must be some text between two variables; a variable in quotes ends at the first quote that is not escaped and has the next text of
/// the format behind it. Fields of `json` have paths, such as `client=.req.ip|.ip`, the first of which counts that a line has.
///
/// Lines may stand in lines of Docker, of Kubernetes (CRI), of syslog, of the journal, or of `docker compose logs`. Empty lines and those that
/// begin with `#` are of no request.
#[derive(Clone, Debug)]
pub struct Format {
    name: &'static str,
    kind: FormatKind,
}

#[derive(Clone, Debug)]
enum FormatKind {
    /// Lines are of one of these.
    Templates(Vec<Template>),
    Json(Vec<JsonShape>),
}

/// A format that may be that of a log.
pub(crate) struct Guess {
    pub(crate) wrapping: Wrapping,
    pub(crate) format: Format,
    /// The number of lines that it reads.
    pub(crate) fits: usize,
    /// The number of those that have the address of a client.
    clients: usize,
    /// The number of all that are of requests.
    pub(crate) lines: usize,
    /// The beginning of the first line that it does not read.
    pub(crate) other: Option<String>,
}

/// The reason why a line is not about a request.
pub(super) const NO_REQUEST: &str = "it is of no request";

impl Format {
    /// The format and the wrapping that fit most of these lines. A format that is given is the only one that is tried.
    pub(crate) fn guess(lines: &[Cow<'_, str>], given: Option<&Self>) -> Option<Guess> {
        let mut best: Option<Guess> = None;
        for wrapping in Wrapping::ALL {
            let inner: Vec<_> = lines.iter().filter_map(|line| wrapping.unwrap(line)).collect();
            let formats = match given {
                _ if inner.is_empty() => Vec::new(),
                Some(given) => vec![given.clone()],
                None => Self::all(&inner),
            };
            for format in formats {
                let mut guess =
                    Guess { wrapping, format, fits: 0, clients: 0, lines: lines.len(), other: None };
                let mut clock = TimeReader::default();
                for line in &inner {
                    match guess.format.parse(line, &mut clock) {
                        Ok(entry) => {
                            guess.fits += 1;
                            guess.clients += usize::from(entry.peer.is_some());
                        }
                        Err(NO_REQUEST) => guess.lines -= 1,
                        Err(_) => _ = guess.other.get_or_insert_with(|| line.chars().take(160).collect()),
                    }
                }
                // A text of another program may look like a client without an address.
                let score = (guess.fits, guess.clients);
                if best.as_ref().is_none_or(|best| score > (best.fits, best.clients)) {
                    best = Some(guess);
                }
            }
        }
        best
    }

    /// All formats that are known, and that of these lines if they have `#Fields`.
    fn all(lines: &[Cow<'_, str>]) -> Vec<Self> {
        let fields = lines.iter().find_map(|line| line.strip_prefix("#Fields:"));
        let w3c = fields.and_then(|fields| {
            let has_tabs = lines.iter().any(|line| !line.starts_with('#') && line.contains('\t'));
            let text = known::from_w3c(fields, if has_tabs { "\t" } else { " " });
            Some(Self { name: "w3c", kind: FormatKind::Templates(vec![Template::read(&text).ok()?]) })
        });
        let names = known::TEMPLATES.iter().map(|(name, _)| *name).chain(["json"]);
        w3c.into_iter().chain(names.filter_map(|name| name.parse().ok())).collect()
    }

    /// Returns the format without a look at header fields of these names.
    pub(crate) fn without(mut self, unread: &[HeaderName]) -> Self {
        if let FormatKind::Templates(templates) = &mut self.kind {
            *templates = templates.drain(..).map(|template| template.without(unread)).collect();
        }
        self
    }

    /// Takes a line apart, or says why it cannot.
    pub(super) fn parse<'a>(
        &self,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<LogEntry<'a>, &'static str> {
        let mut entry = LogEntry::default();
        self.fill(&mut entry, line, clock).map(|()| entry)
    }

    /// Takes a line apart into a new entry in place: an entry is large, and returning it copied it twice for each line.
    #[inline]
    pub(super) fn fill<'a>(
        &self,
        entry: &mut LogEntry<'a>,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<(), &'static str> {
        if line.starts_with('#') || line.trim_ascii_start().is_empty() {
            return Err(NO_REQUEST);
        }
        match &self.kind {
            FormatKind::Json(shapes) => json::fill(shapes, entry, line, clock),
            FormatKind::Templates(templates) => {
                let mut result = Err(NO_REQUEST);
                for template in templates {
                    result = template.fill(entry, line, clock);
                    if result.is_ok() {
                        break;
                    }
                    *entry = LogEntry::default();
                }
                result
            }
        }
    }

    /// Whether the beginning of a request is known, or the time of its end and the time that it took. Otherwise it is replayed at the
    /// logged time, which is the end for nginx and the beginning for Apache. With `json` this differs by line, and the outcome says whether
    /// all lines have known beginnings.
    pub fn knows_arrival(&self) -> bool {
        match &self.kind {
            FormatKind::Templates(templates) => templates.iter().all(Template::knows_arrival),
            FormatKind::Json(_) => false,
        }
    }
}

impl FromStr for Format {
    type Err = String;

    /// # Errors
    /// When it is no format, or has no time or no URL.
    fn from_str(text: &str) -> Result<Self, String> {
        let templates = |name, texts: &[&str]| {
            let templates = texts.iter().map(|text| Template::read(text)).collect::<Result<_, _>>()?;
            Ok(Self { name, kind: FormatKind::Templates(templates) })
        };
        let json = |shapes| Ok(Self { name: "json", kind: FormatKind::Json(shapes) });
        match (known::TEMPLATES.iter().find(|(name, _)| *name == text), text.strip_prefix("json ")) {
            (Some((name, texts)), _) => templates(name, texts),
            (None, Some(fields)) => json(vec![JsonShape::read("", fields)?]),
            (None, None) if text == "json" => json(JsonShape::known()),
            _ if text.contains('$') => templates("log_format", &[text]),
            _ if text.contains('%') => templates("LogFormat", &[&known::from_apache(text)]),
            _ => {
                let names: Vec<&str> = known::TEMPLATES.iter().map(|(name, _)| *name).collect();
                Err(format!(
                    "{text:?} is not a format: use {}, json, nginx's log_format, such as '$remote_addr [$time_local] \"$request\"', or Apache's LogFormat",
                    names.join(", ")
                ))
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
