//! Lines that try to mislead: L01 to L10 of the test plan; L11 and L12 are of the command.

use std::io::{Cursor, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::{fields, line, of_policy, run, try_run};

const REPLAY: &str = "{ quota: 100/min }";

#[test]
fn l01_lines_without_fields_are_listed_with_their_numbers() {
    let log =
        [line(0, "192.0.2.1", "/"), "\n-\n192.0.2.1 - - [\n".to_owned(), line(1, "192.0.2.1", "/").repeat(2)]
            .concat();
    let outcome = run(&of_policy(REPLAY), log);
    let numbers: Vec<u64> = outcome.lines.shown.iter().map(|shown| shown.line).collect();
    assert_eq!((outcome.lines.read, outcome.lines.not_understood, numbers), (6, 2, vec![3, 4]));
    assert!(outcome.to_string().contains("line 3: it does not have the fields of the format: -"));
}

#[test]
fn l02_quotes_and_escapes_stay_in_their_fields() {
    let agent = |text: &str| line(0, "192.0.2.1", "/").replace("\"-\"\n", &format!("\"{text}\"\n"));
    let log =
        [agent(r#"a \"b\" c"#), agent(r"\x22\x5C"), agent(r"ends with \\"), agent("] \\\" 200 1")].concat();
    let outcome = run(&of_policy(REPLAY), log);
    assert_eq!((outcome.lines.not_understood, outcome.rules[0].asked), (0, 4));
}

#[test]
fn l03_ipv6_clients_count_by_their_network() {
    let log =
        [line(0, "2001:db8::1", "/"), line(1, "2001:db8::2", "/"), line(2, "2001:db8:0:1::1", "/")].concat();
    assert_eq!(run(&of_policy(REPLAY), log).rules[0].keys, 2);
}

#[test]
fn l04_zones_and_summer_time_make_one_order() {
    let log = [
        line(5, "192.0.2.1", "/"),
        line(3, "192.0.2.1", "/").replace("17/May/2015:10:00:03 +0000", "17/May/2015:12:00:03 +0200"),
        line(4, "192.0.2.1", "/").replace("17/May/2015:10:00:04 +0000", "17/May/2015:05:30:04 -0430"),
    ]
    .concat();
    let outcome = run(&of_policy(REPLAY), log);
    assert_eq!((outcome.lines.late, outcome.span), (0, Some((1_431_856_803_000_000, 1_431_856_805_000_000))));
}

#[test]
fn l05_small_logs_are_put_in_order_and_of_large_ones_late_lines_are_counted() {
    // The fifth is of before the others: under a window, that is another figure.
    let scrambled =
        |seconds: &[u64]| seconds.iter().map(|second| line(*second, "192.0.2.1", "/")).collect::<String>();
    let policy = "{ algorithm: fixed-window, quota: 3/min }";
    let outcome = run(&of_policy(policy), scrambled(&[130, 131, 3_000, 131, 25, 100, 50]));
    assert_eq!(
        outcome.to_json(),
        run(&of_policy(policy), scrambled(&[25, 50, 100, 130, 131, 131, 3_000])).to_json()
    );
    assert_eq!((outcome.lines.late, outcome.rules[0].asked, outcome.rules[0].rejected), (0, 7, 0));

    let mut large: String = (0..3_000).map(|second| line(second, "192.0.2.1", "/").repeat(25)).collect();
    large.push_str(&line(2_995, "192.0.2.1", "/"));
    large.push_str(&line(1, "192.0.2.1", "/"));
    let outcome = run(&of_policy(policy), large);
    assert_eq!((outcome.lines.late, outcome.rules[0].asked), (1, 75_002));
    assert!(outcome.to_string().contains("1 line came more than 10 s and 32,768 requests too late"));
}

/// Lines were once numbered through, and logs read in the order of their names.
#[test]
fn several_logs_are_one_in_the_order_of_their_times_and_each_numbers_its_own_lines() {
    let log =
        |from: u64, to: u64| (from..to).map(|second| line(second, "192.0.2.1", "/")).collect::<String>();
    let one = run(&of_policy("{ quota: 5/min }"), log(0, 300));
    let logs =
        [("new.log", [log(200, 300), "what\n".into()].concat()), ("old.log", ["?\n", &log(0, 200)].concat())];
    for logs in [logs.clone(), [logs[1].clone(), logs[0].clone()]] {
        let logs = logs.map(|(name, log)| (name, Cursor::new(log)));
        let outcome = of_policy("{ quota: 5/min }").run(logs).unwrap();
        assert_eq!((outcome.lines.late, outcome.rules[0].rejected), (0, one.rules[0].rejected));
        let table = outcome.to_string();
        assert!(table.contains("old.log, line 1: ") && table.contains("new.log, line 101: "), "{table}");
        let object: serde_json::Value = serde_json::from_str(&outcome.to_json()).unwrap();
        let first = fields(&object, "/lines/first_not_understood/0");
        assert_eq!(first, ["begins", "line", "log", "reason"].into());
        assert_eq!(object["lines"]["first_not_understood"][0]["log"], "old.log");
        assert_eq!(object["lines"]["first_not_understood"][1]["line"], 101);
    }
}

#[test]
fn l06_gzip_an_empty_log_and_a_last_line_without_an_end_are_read() {
    let log = [line(0, "192.0.2.1", "/"), line(1, "192.0.2.1", "/")].concat();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(log.trim_end().as_bytes()).unwrap();
    assert_eq!(run(&of_policy(REPLAY), gzip.finish().unwrap()).rules[0].asked, 2);
    let empty = run(&of_policy(REPLAY), "");
    assert_eq!((empty.lines.read, empty.rules[0].asked, empty.span), (0, 0, None));
    assert!(empty.to_string().contains("no line, 0 lines read"));
}

#[test]
fn l07_a_line_of_a_megabyte_is_not_kept() {
    let long = line(0, "192.0.2.1", &format!("/{}", "x".repeat(1 << 20)));
    let log = [line(0, "192.0.2.1", "/"), long, line(1, "192.0.2.1", "/")].concat();
    let outcome = run(&of_policy(REPLAY), log);
    assert_eq!((outcome.lines.read, outcome.lines.not_understood, outcome.rules[0].asked), (3, 1, 2));
    let shown = &outcome.lines.shown[0];
    assert_eq!((shown.line, shown.reason), (2, "it is longer than 256 KiB"));
    assert!(shown.begins.as_ref().is_some_and(|begins| begins.len() < 1_000));
}

#[test]
fn l08_bytes_that_are_no_text_are_read_around_and_shown_escaped() {
    let with = |bytes: &[u8]| {
        let text = line(0, "192.0.2.1", "/").into_bytes();
        let agent = text.len() - 3;
        [&text[..agent], bytes, &text[agent + 1..]].concat()
    };
    let log = [with(b"\xff\xfe caf\xe9"), with(b"\xff"), b"\x1b[31m\xff\x07 nothing\n".to_vec()].concat();
    let outcome = run(&of_policy(REPLAY), log);
    assert_eq!((outcome.rules[0].asked, outcome.lines.not_understood), (2, 1));
    assert!(!outcome.to_string().contains(['\x1b', '\x07']));
}

#[test]
fn l09_a_time_that_has_not_come_yet_is_not_understood() {
    let log = [
        line(0, "192.0.2.1", "/"),
        line(1, "192.0.2.1", "/").replace("2015", "2099"),
        line(2, "192.0.2.1", "/"),
    ];
    let outcome = run(&of_policy(REPLAY).latest_us(1_431_900_000_000_000), log.concat());
    assert_eq!((outcome.lines.not_understood, outcome.lines.late, outcome.rules[0].asked), (1, 0, 2));
    assert_eq!(outcome.lines.shown[0].reason, "its time has not come yet");
}

#[test]
fn l10_durations_below_zero_and_above_a_month_are_not_understood() {
    let format = r#"$msec $request_time $remote_addr "$request""#.parse().unwrap();
    let log: String = ["0.5", "-1", "1e9", "99999999999", "NaN"]
        .map(|took| format!("1431857103.250 {took} 192.0.2.1 \"GET / HTTP/1.1\"\n"))
        .concat();
    let outcome = run(&of_policy(REPLAY).format(format).allow_other_lines(), log);
    assert_eq!((outcome.rules[0].asked, outcome.lines.not_understood), (1, 4));
}

#[test]
fn requests_that_no_server_takes_are_not_understood() {
    let request = |text: &str| line(0, "192.0.2.1", "/").replace("GET / HTTP/1.1", text);
    let log = [
        request(r"\x16\x03\x01"),
        request("-"),
        request("GET /a b"),
        request("G<T / HTTP/1.1"),
        request("GET / HTTP/1.1"),
    ];
    let outcome = run(&of_policy(REPLAY).allow_other_lines(), log.concat());
    assert_eq!((outcome.rules[0].asked, outcome.lines.not_understood), (1, 4));
}

#[test]
fn a_log_of_no_known_format_is_refused_with_its_first_line() {
    let error = try_run(&of_policy(REPLAY), "one two three\n").unwrap_err();
    assert!(
        error.to_string().contains("say --format") && error.to_string().contains("one two three"),
        "{error}"
    );
}

#[test]
fn with_hidden_keys_lines_are_told_by_number_and_reason_alone() {
    let log = [line(0, "192.0.2.1", "/").repeat(2), "192.0.2.99 secret\n".to_owned()].concat();
    let shows = |replay| {
        let outcome = run(&replay, &log);
        [outcome.to_string(), outcome.to_json(), outcome.to_html()]
    };
    for text in shows(of_policy(REPLAY)) {
        assert!(text.contains("192.0.2.99 secret"), "{text}");
    }
    for text in shows(of_policy(REPLAY).hide_keys()) {
        assert!(!text.contains("192.0.2.99") && !text.contains("secret"), "{text}");
        assert!(text.contains("it does not have the fields of the format"), "{text}");
    }
    let error = try_run(&of_policy(REPLAY).hide_keys(), "192.0.2.99 secret\n").unwrap_err();
    assert!(error.to_string().contains("say --format") && !error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_log_of_which_no_line_is_understood_is_an_error() {
    let replay = of_policy(REPLAY).format("json".parse().unwrap());
    let log = line(0, "192.0.2.1", "/").repeat(3);
    let error = try_run(&replay, &log).unwrap_err().to_string();
    assert!(error.starts_with("access.log: 3 of 3 lines are not understood in the format json; line 1: "));
    assert!(error.contains("192.0.2.1"), "{error}");
    let error = try_run(&replay.hide_keys(), &log).unwrap_err().to_string();
    assert!(!error.contains("192.0.2.1"), "{error}");
}

#[test]
fn an_error_of_a_log_names_the_log_and_the_line() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(line(0, "192.0.2.1", "/").repeat(3).as_bytes()).unwrap();
    let mut torn = gzip.finish().unwrap();
    torn.truncate(torn.len() - 8);
    let whole = line(0, "192.0.2.1", "/").into_bytes();
    let logs = [("first.log", whole), ("second.log.gz", torn)].map(|(name, log)| (name, Cursor::new(log)));
    let error = of_policy(REPLAY).run(logs).unwrap_err();
    assert_eq!(error.to_string(), "second.log.gz: it cannot be read behind line 3");
    assert!(std::error::Error::source(&error).is_some());
}
