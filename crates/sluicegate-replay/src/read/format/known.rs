//! The formats that servers write by default: a row each.
//!
//! A format of fields between fixed texts is written in the words of [`Template`]. One of JSON is written in those of [`JsonShape`]: the
//! paths by which its lines are known, and for each field the paths where it is.
//!
//! [`Template`]: crate::read::format::template::Template
//! [`JsonShape`]: crate::read::format::json::JsonShape

/// Formats of fields between fixed texts, each with the shapes that it has. Of those that read a log equally well, the first is taken.
pub(super) const TEMPLATES: &[(&str, &[&str])] = &[
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
pub(super) fn from_apache(text: &str) -> String {
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
pub(super) fn from_w3c(fields: &str, separator: &str) -> String {
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
