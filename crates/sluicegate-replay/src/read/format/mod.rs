//! The format of the lines of a log: [`Format`].

mod template;
pub(crate) mod time;

pub(super) use self::template::LogEntry;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use serde_json::{Map, Value};

use crate::read::format::template::{Field, Template};
use crate::read::format::time::TimeReader;

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
            let text = from_w3c(fields, if has_tabs { "\t" } else { " " });
            Some(Self { name: "w3c", kind: FormatKind::Templates(vec![Template::read(&text).ok()?]) })
        });
        let names = TEMPLATES.iter().map(|(name, _)| *name).chain(["json"]);
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
            FormatKind::Json(shapes) => fill(shapes, entry, line, clock),
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
        match (TEMPLATES.iter().find(|(name, _)| *name == text), text.strip_prefix("json ")) {
            (Some((name, texts)), _) => templates(name, texts),
            (None, Some(fields)) => json(vec![JsonShape::read("", fields)?]),
            (None, None) if text == "json" => json(JsonShape::known()),
            _ if text.contains('$') => templates("log_format", &[text]),
            _ if text.contains('%') => templates("LogFormat", &[&from_apache(text)]),
            _ => {
                let names: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();
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

// The formats that servers write by default: a row each.
//
// A format of fields between fixed texts is written in the words of [`Template`]. One of JSON is written in those of [`JsonShape`]: the
// paths by which its lines are known, and for each field the paths where it is.
//
// [`Template`]: crate::read::format::template::Template
// [`JsonShape`]: crate::read::format::JsonShape

/// Formats of fields between fixed texts, each with the shapes that it has. Of those that read a log equally well, the first is taken.
const TEMPLATES: &[(&str, &[&str])] = &[
    ("common", &[r#"$client - $user [$time] "$request" $status $bytes"#]),
    (
        "combined",
        &[r#"$client - $user [$time] "$request" $status $bytes "$http_referer" "$http_user_agent""#],
    ),
    (
        "main",
        &[
            r#"$client - $user [$time] "$request" $status $bytes "$http_referer" "$http_user_agent" "$http_x_forwarded_for""#,
        ],
    ),
    (
        "vhost_combined",
        &[
            r#"$host:$port $client $logname $user [$begin] "$request" $status $bytes "$http_referer" "$http_user_agent""#,
        ],
    ),
    (
        "ingress-nginx",
        &[
            r#"$client - $user [$time] "$request" $status $bytes "$http_referer" "$http_user_agent" $length $took [$upstream] [$alternative] $upstream_addr $upstream_length $upstream_time $upstream_status $id"#,
        ],
    ),
    (
        "traefik",
        &[
            r#"$client - $user [$begin] "$request" $status $bytes "$http_referer" "$http_user_agent" $count "$router" "$server" $took"#,
        ],
    ),
    (
        "alb",
        &[
            r#"$type $time $balancer $client $target $t1 $t2 $t3 $status $s $in $out "$request" "$http_user_agent" $cipher $tls $group "$trace" "$domain" "$certificate" $priority $begin "$actions" $rest"#,
        ],
    ),
    (
        "haproxy",
        &[
            r#"$client_and_port [$begin] $frontend $backend $timers $status $bytes $c1 $c2 $state $connections $queues "$request""#,
            r#"$client_and_port [$begin] $frontend $backend $timers $status $bytes $c1 $c2 $state $connections $queues {$captures} "$request""#,
        ],
    ),
    (
        "envoy",
        &[
            r#"[$begin] "$request" $status $flags $in $out $took_ms $upstream "$forwarded" "$http_user_agent" "$id" "$host" "$server""#,
            r#"[$begin] "$request" $status $flags $details $ends "$failure" $in $out $took_ms $upstream "$http_x_forwarded_for" "$http_user_agent" "$id" "$host" "$server" $cluster $from $to $client $name $route"#,
        ],
    ),
    ("api-gateway", &[r#"$client $caller $user [$begin] "$request" $status $bytes $id"#]),
    (
        "uwsgi",
        &[
            r#"[pid: $pid|app: $app|req: $count] $client ($user) {$size} [$begin] $method $url => generated $bytes bytes in $spent msecs ($protocol $status) $rest"#,
        ],
    ),
    // A format that a server's owner has extended, as most do.
    (
        "combined+",
        &[r#"$client - $user [$time] "$request" $status $bytes "$http_referer" "$http_user_agent" $rest"#],
    ),
];

/// Lines of JSON. The first row whose paths a line has says what it is; one without fields says that it is of no request, because the server
/// writes it beside the line of the request.
pub(super) const JSON: &[(&str, &str)] = &[
    ("logger=http.log.error", ""),
    (
        "request.remote_ip ts",
        "time=ts took=duration client=request.remote_ip method=request.method url=request.uri host=request.host headers=request.headers status=status",
    ),
    (
        "RequestPath RequestMethod",
        "begin=StartUTC|StartLocal time=time took_ns=Duration client=ClientAddr|ClientHost method=RequestMethod url=RequestPath host=RequestHost|RequestAddr status=DownstreamStatus",
    ),
    (
        "EdgeResponseStatus",
        "begin=EdgeStartTimestamp time=EdgeEndTimestamp client=ClientIP method=ClientRequestMethod url=ClientRequestURI|ClientRequestPath host=ClientRequestHost http_user_agent=ClientRequestUserAgent http_referer=ClientRequestReferer status=EdgeResponseStatus",
    ),
    (
        "httpRequest.requestUrl",
        "time=timestamp client=httpRequest.remoteIp method=httpRequest.requestMethod url=httpRequest.requestUrl http_user_agent=httpRequest.userAgent http_referer=httpRequest.referer status=httpRequest.status",
    ),
    (
        "start_time response_code",
        "begin=start_time client=downstream_remote_address|downstream_direct_remote_address forwarded=x_forwarded_for|x-forwarded-for method=method url=path|x-envoy-origin-path|x_envoy_original_path host=authority|:authority http_user_agent=user_agent|user-agent status=response_code",
    ),
    (
        "requestTime httpMethod",
        "begin=requestTimeEpoch|requestTime client=ip|sourceIp|identity.sourceIp method=httpMethod url=path|resourcePath request=routeKey host=domainName http_user_agent=userAgent status=status",
    ),
    // Fastify writes a line as a request comes, and one without its URL as it ends.
    (
        "req.url msg=incoming",
        "begin=time client=req.remoteAddress|req.ip method=req.method url=req.url host=req.host|req.hostname headers=req.headers",
    ),
    (
        "req.url responseTime",
        "time=time took_ms=responseTime client=req.remoteAddress|req.ip method=req.method url=req.url host=req.host|req.hostname headers=req.headers status=res.statusCode",
    ),
    ("req.url", ""),
    ("reqId", ""),
    (
        "span.uri fields.message|message=finished",
        "time=timestamp took=fields.latency|latency client=span.client_ip|span.client|span.peer method=span.method url=span.uri headers=span.headers status=fields.status|status",
    ),
    ("span.uri", ""),
    (
        "",
        "time=msec|time_iso8601|time_local|@timestamp|timestamp|ts|time|start_time|datetime took=request_time client=remote_addr|remote_ip|client_ip|clientip|ClientHost|ip|client|source.ip|client.ip|request.remote_ip|request.client_ip request=request method=request_method|method|verb|http.request.method|request.method url=request_uri|uri|url|path|target|url.original|url.path|request.uri|request.url query=args|query_string|url.query host=host|http_host|request.host headers=headers|request.headers http_user_agent=user_agent|user_agent.original|request.user_agent http_referer=referer forwarded=x_forwarded_for|x-forwarded-for status=status|status_code|response_code|response|http.response.status_code|response.status",
    ),
];

/// The words of Apache's `LogFormat`, and those of a `log_format`. The text between `{` and `}` is part of the word.
const APACHE: &[(&str, &str)] = &[
    ("%h", "client"),
    ("%a", "client"),
    ("%{c}a", "peer"),
    ("%t", "begin"),
    ("%r", "request"),
    ("%m", "method"),
    ("%U", "url"),
    ("%q", "query"),
    ("%s", "status"),
    ("%v", "host"),
    ("%V", "host"),
];

/// Writes Apache's `LogFormat` as a `log_format`.
fn from_apache(text: &str) -> String {
    let text = text.replace("\\\"", "\"").replace("\\t", "\t").replace("%U%q", "${url}");
    let mut format = String::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some((before, directive)) = rest.split_once('%') {
        format.push_str(before);
        let directive = directive.trim_start_matches(|c: char| "<>!,".contains(c) || c.is_ascii_digit());
        let (argument, directive) =
            directive.strip_prefix('{').and_then(|rest| rest.split_once('}')).unwrap_or(("", directive));
        let letter = directive.chars().next().unwrap_or('%');
        rest = directive.get(letter.len_utf8()..).unwrap_or_default();
        let plain = APACHE.iter().find(|(word, _)| **word == *format!("%{letter}")).map(|(_, word)| *word);
        let word = match letter {
            '%' => "%".to_owned(),
            't' if argument.is_empty() => "[${begin}]".to_owned(),
            't' if argument.starts_with("end:") => "${time}".to_owned(),
            'i' => format!("${{http_{}}}", argument.to_ascii_lowercase().replace('-', "_")),
            _ => format!("${{{}}}", plain.unwrap_or("unused")),
        };
        format.push_str(&word);
    }
    format + rest
}

/// Writes the `#Fields` of a log of the W3C as a `log_format`, of which tabs or spaces separate the fields. CloudFront has durations in
/// seconds, and IIS in milliseconds.
fn from_w3c(fields: &str, separator: &str) -> String {
    let is_cloudfront = fields.contains("x-edge-location");
    let word = |name: &str| match name {
        "date" => "day".to_owned(),
        "time" => "clock".to_owned(),
        "timestamp" => "time".to_owned(),
        "c-ip" => "client".to_owned(),
        "cs-method" => "method".to_owned(),
        "cs-uri-stem" => "url".to_owned(),
        "cs-uri-query" => "query".to_owned(),
        "sc-status" => "status".to_owned(),
        "time-taken" => if is_cloudfront { "took" } else { "took_ms" }.to_owned(),
        // The host of CloudFront's own name is of no use.
        "cs-host" | "x-host-header" => "host".to_owned(),
        "cs(Host)" if is_cloudfront => "unused".to_owned(),
        name => match name.strip_prefix("cs(").and_then(|name| name.strip_suffix(')')) {
            Some(header) => format!("http_{}", header.to_ascii_lowercase().replace('-', "_")),
            None => "unused".to_owned(),
        },
    };
    let fields: Vec<String> =
        fields.split_ascii_whitespace().map(|name| format!("${{{}}}", word(name))).collect();
    fields.join(separator)
}

// Other programs write lines of logs into lines of their own: [`Wrapping`].

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
    const ALL: [Self; 5] = [Self::None, Self::Json, Self::Cri, Self::Syslog, Self::Compose];

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

// Lines that are objects of JSON: [`JsonShape`].
//
// Each line is read by itself, and a log may have lines of several shapes. A line is read into a map before its parts are taken out, which
// takes several times as long as a line of fields.

/// Where lines of one kind have their fields.
#[derive(Clone, Debug)]
pub(super) struct JsonShape {
    /// The paths that such lines have, and the beginnings of the texts that are there.
    only: Vec<(Paths, String)>,
    /// Each field, at the first of its paths that a line has. Without fields, lines are of no request.
    fields: Vec<(Field, Paths)>,
}

/// Paths such as `req.headers`, the first of which counts that a line has.
type Paths = Vec<String>;

impl JsonShape {
    /// The shapes that are known.
    pub(super) fn known() -> Vec<Self> {
        JSON.iter().filter_map(|(only, fields)| Self::read(only, fields).ok()).collect()
    }

    /// Reads paths with the texts that are there, as `msg=incoming`, and fields with their paths, as `client=req.ip|ip`.
    ///
    /// # Errors
    /// When a field has no path, and when there are fields, but no time or URL.
    pub(super) fn read(only: &str, fields: &str) -> Result<Self, String> {
        let paths =
            |text: &str| text.split('|').map(|path| path.trim_start_matches('.').to_owned()).collect();
        let only = only.split_ascii_whitespace().map(|mark| mark.split_once('=').unwrap_or((mark, "")));
        let only = only.map(|(path, text)| (paths(path), text.to_owned())).collect();
        let fields = fields.split_ascii_whitespace().map(|field| {
            let (word, path) = field
                .split_once('=')
                .ok_or_else(|| format!("{field:?} is no field: write client=.req.ip"))?;
            match Field::named(word)? {
                Field::Unused => Err(format!("{word:?} is no field: use {WORDS}")),
                known => Ok((known, paths(path))),
            }
        });
        let shape = Self { only, fields: fields.collect::<Result<_, String>>()? };
        if !shape.fields.is_empty() {
            Field::check(shape.fields.iter().map(|(field, _)| field))?;
        }
        Ok(shape)
    }

    fn is_of(&self, object: &Map<String, Value>) -> bool {
        self.only.iter().all(|(paths, text)| {
            find(object, paths).is_some_and(|value| value.as_str().unwrap_or_default().starts_with(&**text))
        })
    }
}

const WORDS: &str = "time, begin, took, took_ms, took_us, took_ns, client, forwarded, request, method, url, query, host, headers, http_NAME, status";

/// Takes a line apart, by the first shape that it has.
///
/// # Errors
/// The first part that is missing or cannot be read.
pub(super) fn fill(
    shapes: &[JsonShape],
    entry: &mut LogEntry<'_>,
    line: &str,
    clock: &mut TimeReader,
) -> Result<(), &'static str> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|_| "it is not an object of JSON")?;
    let shape = shapes.iter().find(|shape| shape.is_of(&object)).ok_or("it has no URL")?;
    if shape.fields.is_empty() {
        return Err(NO_REQUEST);
    }
    for (field, paths) in &shape.fields {
        match (field, find(&object, paths)) {
            (_, None | Some(Value::Null)) => {}
            (Field::Headers, Some(Value::Object(headers))) => {
                headers.iter().for_each(|(name, value)| header(name, value, entry));
            }
            // An object of this name has the parts of the request.
            (Field::Request, Some(Value::Object(_))) => {}
            (Field::Request, Some(_)) if !entry.target.is_empty() => {}
            (_, Some(value)) => field.read(Cow::Owned(text(value)), entry, clock)?,
        }
    }
    for (name, value) in &object {
        // So do nginx and Traefik name header fields.
        let named = name.strip_prefix("http_").or_else(|| {
            name.strip_prefix("request_").filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
        });
        named.into_iter().for_each(|name| header(&name.replace('_', "-"), value, entry));
    }
    if entry.target.is_empty() {
        return Err("it has no URL");
    }
    if entry.method.is_empty() {
        return Err("it has no method");
    }
    Ok(())
}

/// The value at the first of these paths that an object has. A name may have dots of its own.
fn find<'a>(object: &'a Map<String, Value>, paths: &[String]) -> Option<&'a Value> {
    let at = |path: &String| path.split_once('.').and_then(|(name, rest)| within(object.get(name)?, rest));
    paths.iter().find_map(|path| object.get(path).or_else(|| at(path)))
}

fn within<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(path).or_else(|| path.split_once('.').and_then(|(name, rest)| within(object.get(name)?, rest)))
}

/// Adds a header field, whose value is a text or a list.
fn header(name: &str, value: &Value, entry: &mut LogEntry<'_>) {
    let value = value.as_array().and_then(|values| values.first()).unwrap_or(value);
    if let (Ok(name), Value::String(value)) = (name.parse(), value)
        && value != "-"
        && !value.is_empty()
        && !entry.headers.iter().any(|(known, _)| *known == name)
    {
        entry.headers.push((name, Cow::Owned(value.clone())));
    }
}

/// A value as text, because servers differ about quotes. A number has no exponent.
fn text(value: &Value) -> String {
    match (value, value.as_f64().filter(|_| value.is_f64())) {
        (Value::String(text), _) => text.clone(),
        (_, Some(number)) => number.to_string(),
        (other, None) => other.to_string(),
    }
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

#[cfg(test)]
mod json_tests {
    use super::*;

    #[test]
    fn objects_of_nginx_caddy_and_traefik_say_the_same() {
        let nginx = r#"{"msec":"1431857104.500","request_time":"1.250","remote_addr":"192.0.2.7","request":"GET /a?b HTTP/2.0","status":"200","http_x_api_key":"k1"}"#;
        let caddy = r#"{"ts":1431857103.25,"duration":0.00000001,"request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a?b","headers":{"X-Api-Key":["k1"]}},"status":200}"#;
        let traefik = r#"{"StartUTC":"2015-05-17T10:05:03.25Z","ClientHost":"192.0.2.7","RequestMethod":"GET","RequestPath":"/a?b","DownstreamStatus":200,"request_X-Api-Key":"k1"}"#;
        let shapes = JsonShape::known();
        assert_eq!(shapes.len(), JSON.len(), "each row can be read");
        for line in [nginx, caddy, traefik] {
            let (mut entry, mut clock) = (LogEntry::default(), TimeReader::default());
            fill(&shapes, &mut entry, line, &mut clock).unwrap();
            assert_eq!(entry.arrival().unwrap().us, 1_431_857_103_250_000, "{line}");
            assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a?b", Some(200)));
            assert_eq!(entry.peer, Some("192.0.2.7".parse().unwrap()));
            assert_eq!((entry.headers[0].0.as_str(), &*entry.headers[0].1), ("x-api-key", "k1"));
        }
        for line in ["", "[]", "{}", r#"{"ts":1}"#, r#"{"ts":-1,"method":"GET","uri":"/"}"#] {
            let (mut entry, mut clock) = (LogEntry::default(), TimeReader::default());
            assert!(fill(&shapes, &mut entry, line, &mut clock).is_err(), "{line}");
        }
    }
}
