//! Logs as servers write them: for each format a file of the same ten requests in `tests/formats`, without a word about it.
//!
//! | begins at | client | URL | a minute per client, one request |
//! |---|---|---|---|
//! | 10:00:00 | 192.0.2.1 | `GET /`, of 55 seconds | |
//! | 10:00:10 | 192.0.2.1 | `GET /a?b=c` | rejected |
//! | 10:00:20 | 192.0.2.2 | `POST /login` | |
//! | 10:00:30 | 192.0.2.2 | `GET /x` | rejected |
//! | 10:01:05 | 192.0.2.1 | `GET /` | |
//! | 10:01:10 | 192.0.2.3 | `GET /` | |
//! | 10:01:20 | 2001:db8::7 | `GET /` | |
//! | 10:01:30 | 192.0.2.2 | `GET /` | |
//! | 10:01:40 | 192.0.2.3 | `GET /img.png` | rejected |
//! | 10:02:30 | 192.0.2.3 | `GET /` | |
//!
//! So ten are asked, three of four keys are rejected once, and one has the path `/login`. By their ends, four would be rejected.

use std::io::Cursor;

use sluicegate_replay::Replay;

use crate::support::{line, of_policy, of_rules, run, try_run};

const RULES: &str = "
version: 1
policies: { p: { algorithm: sliding-log, quota: 1/min }, many: { quota: 1000/s }, more: { quota: 1000/s } }
rules:
  - { name: all, limit: p, key: client }
  - { name: login, only_if: { path: /login, method: POST }, limit: many, key: client }
  - { name: shop, only_if: { host: shop.example }, limit: more, key: client }
";

/// Each file with its format, whether it says the host, and whether it says when a request began.
const FILES: [(&str, &str, bool, bool); 31] = [
    ("common", "common", false, false),
    ("combined", "combined", false, false),
    ("main", "main", false, false),
    ("vhost_combined", "vhost_combined", true, true),
    ("combined_more", "combined+", false, false),
    ("ingress-nginx", "ingress-nginx", false, true),
    ("nginx_json", "json", true, true),
    ("traefik", "traefik", false, true),
    ("traefik_json", "json", true, true),
    ("alb", "alb", true, true),
    ("cloudfront", "w3c", true, true),
    ("iis", "w3c", true, true),
    ("api-gateway", "api-gateway", false, true),
    ("api-gateway_json", "json", false, true),
    ("haproxy", "haproxy", false, true),
    ("envoy", "envoy", true, true),
    ("istio", "envoy", true, true),
    ("istio_json", "json", true, true),
    ("caddy", "json", true, true),
    ("cloudflare", "json", true, true),
    ("google", "json", true, false),
    ("pino", "json", true, true),
    ("fastify", "json", true, true),
    ("tower-http", "json", false, true),
    ("uwsgi", "uwsgi", false, true),
    ("docker", "combined", false, false),
    ("cri", "combined", false, false),
    ("syslog", "combined", false, false),
    ("compose", "combined", false, false),
    ("own", "json", false, false),
    ("apache", "LogFormat", true, true),
];

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/formats/{name}.log", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Two formats have to be said.
fn replay(name: &str) -> Replay {
    let proxied = format!("{RULES}clients: {{ proxies: 10.0.0.0/8, header: x-forwarded-for }}\n");
    let replay = of_rules(if name == "main" { &proxied } else { RULES });
    let format = match name {
        "own" => "json time=.ts client=.req.ip method=.req.verb url=.req.path",
        "apache" => r#"%h %l %u %t \"%r\" %>s %b \"%{Host}i\" %D"#,
        _ => return replay,
    };
    replay.format(format.parse().expect("it is a format"))
}

#[test]
fn each_format_that_servers_write_says_the_same_ten_requests() {
    for (name, format, has_host, has_begin) in FILES {
        let outcome = try_run(&replay(name), read(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rules: Vec<_> = outcome.rules.iter().map(|rule| (rule.asked, rule.rejected, rule.keys)).collect();
        let shop = if has_host { (10, 0, 4) } else { (0, 0, 0) };
        assert_eq!(rules, [(10, 3, 4), (1, 0, 1), shop], "{name}: {outcome}");
        assert_eq!(outcome.lines.not_understood, 0, "{name}: {outcome}");
        assert_eq!(outcome.formats.iter().map(ToString::to_string).collect::<Vec<_>>(), [format], "{name}");
        let said = if has_begin { "time: the beginning of each request" } else { "time: as logged" };
        assert!(outcome.to_string().contains(said), "{name}: {outcome}");
        assert!(!outcome.to_string().contains("CLIENTS"), "{name}: {outcome}");
    }
}

#[test]
fn logs_of_two_formats_are_one() {
    let names = ["caddy", "alb", "iis"];
    let outcome =
        of_rules(RULES).run(names.map(|name| (name, Cursor::new(read(name))))).expect("all are read");
    let formats: Vec<_> = outcome.formats.iter().map(ToString::to_string).collect();
    assert_eq!(
        (formats.join(" "), outcome.rules[0].asked, outcome.rules[0].keys),
        ("json alb w3c".into(), 30, 4)
    );
}

/// Requests with such URLs were once not understood, and lost.
#[test]
fn a_request_that_a_server_answered_counts_whatever_its_url_has() {
    let urls = ["/a?b=<c>", r"/a?b=\x22c\x22", "/{a}|b", "/a b", "/a\"b", "/caf\u{e9}", "/a^`\\\\"];
    let log: String = (0..).zip(urls).map(|(second, url)| line(second, "192.0.2.1", url)).collect();
    let outcome = run(&of_policy("{ quota: 100/min }"), log);
    assert_eq!((outcome.rules[0].asked, outcome.lines.not_understood), (7, 0), "{outcome}");
}

#[test]
fn a_client_is_an_address_or_the_true_reason_is_said() {
    for (client, key, left_out) in [
        ("fe80::1%eth0", true, None),
        ("192.0.2.1:4000", true, None),
        ("[2001:db8::1]:4000", true, None),
        ("crawler.example", false, Some("the log says no address of the client, but a name")),
        ("unix:", false, Some("the log says no address of the client, but a name")),
    ] {
        let outcome = run(&of_policy("{ quota: 100/min }"), line(0, client, "/"));
        assert_eq!(outcome.rules[0].asked == 1, key, "{client}: {outcome}");
        let reason = outcome.left_out.first().map(|left| &*left.reason);
        assert!(
            left_out.is_none_or(|begin| reason.is_some_and(|reason| reason.starts_with(begin))),
            "{outcome}"
        );
    }
    let rules = "version: 1\nclients: { proxies: 10.0.0.0/8 }\npolicies: { p: { quota: 5/min } }\nrules: [{ name: r, limit: p, key: client }]\n";
    let outcome = run(&of_rules(rules), line(0, "10.0.0.1", "/"));
    assert!(outcome.to_string().contains("CLIENTS: the rules have proxies, but no line names"), "{outcome}");
}

/// One of a hundred lines was once enough to read a log in a format.
#[test]
fn a_log_that_is_mostly_of_another_format_is_an_error_unless_asked_otherwise() {
    let other = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
    let log = line(0, "192.0.2.1", "/").repeat(99) + other;
    let common = || of_policy("{ quota: 1/min }").format("common".parse().unwrap());
    let error = try_run(&common(), &log).unwrap_err().to_string();
    assert!(error.contains("99 of 100 lines are not understood in the format common; line 1: "), "{error}");
    assert_eq!(run(&common().allow_other_lines(), &log).rules[0].asked, 1);
    assert_eq!(run(&of_policy("{ quota: 1/min }"), &log).rules[0].asked, 99);
    let mixed = "nothing\n".repeat(6) + &line(0, "192.0.2.1", "/").repeat(4);
    let error = try_run(&of_policy("{ quota: 1/min }"), &mixed).unwrap_err().to_string();
    assert!(error.contains("the format combined reads 4 of the first 10 lines"), "{error}");
}

/// Each late line was once counted at the earliest open moment, and so rejected.
#[test]
fn a_log_with_its_newest_lines_first_is_sorted_or_refused() {
    let newest_first = |count: u64| -> String {
        (0..count).rev().map(|second| line(second / 40, "192.0.2.1", "/")).collect()
    };
    let policy = "{ algorithm: sliding-log, quota: 1/min }";
    let outcome = run(&of_policy(policy), newest_first(40 * 150));
    assert_eq!((outcome.lines.late, outcome.rules[0].rejected), (0, 5_997), "one at 0, 60 and 120 s");
    let error = try_run(&of_policy(policy), newest_first(120_000)).unwrap_err().to_string();
    assert!(error.contains("too late to be put in order, as if the newest lines were first"), "{error}");
}

#[test]
fn a_log_that_is_packed_or_padded_is_read_or_named() {
    use std::io::Write as _;
    let log = line(0, "192.0.2.1", "/") + "\n# a comment\n" + &line(1, "192.0.2.1", "/");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(log.as_bytes()).unwrap();
    let padded = [gzip.finish().unwrap(), vec![0; 1_000]].concat();
    for log in [padded, [b"\xef\xbb\xbf", log.as_bytes()].concat()] {
        let outcome = run(&of_policy("{ quota: 9/min }"), log);
        let lines = outcome.lines;
        assert_eq!(
            (lines.read, lines.no_request, lines.not_understood, outcome.rules[0].asked),
            (4, 2, 0, 2)
        );
    }
    for (begin, says) in [
        (&b"BZh91AY"[..], "packed by bzip2 (bzcat)"),
        (b"\x28\xb5\x2f\xfd..", "packed by zstd"),
        (b"\xfd7zXZ\0", "packed by xz"),
        (b"\xff\xfe1\09\0", "UTF-16"),
    ] {
        let error = try_run(&of_policy("{ quota: 9/min }"), begin).unwrap_err().to_string();
        assert!(error.starts_with("access.log: it is ") && error.contains(says), "{error}");
    }
}

#[test]
fn times_without_a_zone_are_of_the_zone_that_is_said() {
    let replay = of_rules(RULES).format("[$time] $client $request".parse().unwrap());
    let log = "[2026-07-01 12:00:00] 192.0.2.1 GET\n".replace("GET", "GET\u{a0}/");
    assert!(try_run(&replay, log).is_err(), "its request has no space");
    let log = "[2026-07-01 12:00:00] 192.0.2.1 \"GET / HTTP/1.1\"\n";
    let replay = of_rules(RULES).format("[$time] $client \"$request\"".parse().unwrap());
    let replay = replay.zone("Europe/Berlin").expect("it is known");
    assert_eq!(run(&replay, log).span.map(|(from, _)| from), Some(1_782_900_000_000_000));
    let error = of_rules(RULES).zone("Mars/Olympus").unwrap_err().to_string();
    assert!(error.starts_with("\"Mars/Olympus\" is not a zone"), "{error}");
}
