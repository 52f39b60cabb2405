//! The command as it is called.

#[cfg(unix)]
mod serve;
mod store;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.env_clear().current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command runs")
}

fn printed(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    format!("{}\n{out}{err}", output.status.code().expect("it ended by itself"))
}

#[test]
fn check_says_what_is_good_and_what_is_wrong() {
    assert_eq!(printed(&run(&["check", "rules.yaml"])), "0\nrules.yaml: good\n");
    let wrong = printed(&run(&["check", "rules.yaml", "wrong.yaml"]));
    assert!(wrong.starts_with("1\nwrong.yaml:3:20: error: \"5/fortnight\" is not a quota"), "{wrong}");
    let missing = printed(&run(&["check", "no.yaml"]));
    assert!(missing.starts_with("1\nno.yaml: error: it cannot be read"), "{missing}");
    assert!(printed(&run(&["check"])).starts_with("2\n"));
}

/// By the rules on the page on operating, and the log of the tests of `sluicegate-replay`.
#[test]
fn the_replay_of_the_readme_is_what_the_command_prints() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let page =
        std::fs::read_to_string(format!("{crates}/sluicegate/docs/operating.md")).expect("it is there");
    let rules =
        page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has rules");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    std::fs::create_dir_all(&folder).expect("the folder is made");
    std::fs::write(folder.join("rules.yaml"), rules).expect("the rules are written");
    let log = format!("{crates}/sluicegate-replay/tests/access.log.gz");
    std::fs::copy(log, folder.join("access.log.gz")).expect("the log is there");

    let readme = std::fs::read_to_string(format!("{crates}/../README.md")).expect("it is there");
    let (_, shown) = readme.split_once("$ sluicegate ").expect("it shows the command");
    let (arguments, printed) = shown.split_once('\n').expect("it shows what is printed");
    let (printed, _) = printed.split_once("```").expect("a block ends");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = command(&arguments).current_dir(&folder).output().expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), printed);
}

#[test]
fn a_waiting_room_is_told_in_words_by_every_command() {
    assert_eq!(
        printed(&run(&["check", "room.yaml"])),
        "0\nroom.yaml: good\nroom.yaml: rule \"shop\": waiting room sale, 50/s\n"
    );
    let explain = ["explain", "--rules", "room.yaml", "GET", "/shop/login", "--peer", "203.0.113.9"];
    let explained = printed(&run(&explain));
    let lines: Vec<&str> = explained.lines().collect();
    assert_eq!(lines[..3], ["0", "passes", "  shop: waiting room sale, 50/s"], "{explained}");
    assert!(lines[3].starts_with("  login: asks 1 of login: 5/min"), "{explained}");
    let json = run(&[&explain[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    assert_eq!(json["rules"][0]["rooms"], serde_json::json!([{ "name": "sale", "rate": "50/s" }]));
    assert_eq!(json["rules"][0]["limits"], serde_json::json!([]));
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("room.log");
    let line = "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /shop/login HTTP/1.1\" 200 17\n";
    std::fs::write(&log, line.repeat(6)).expect("the log is written");
    let replayed = printed(&run(&["replay", "--rules", "room.yaml", log.to_str().expect("it is text")]));
    let left_out = "room.yaml: rule \"shop\": waiting room sale, 50/s, is left out: its requests count as let in at once";
    assert!(replayed.starts_with("0\n") && replayed.contains(left_out), "{replayed}");
    assert!(replayed.contains("login") && !replayed.contains("sale  "), "{replayed}");
}

/// Only the text of an explanation once told of policies that defer, and it told of those in shadow too, which defer nothing.
#[test]
fn every_command_tells_which_rule_defers_and_to_which_queue() {
    let told = |policy: &str| {
        format!("defer.yaml: rule \"order\": defers to the queue of the program what exceeds {policy} (gcra)")
    };
    let checked = printed(&run(&["check", "defer.yaml"]));
    assert_eq!(checked, format!("0\ndefer.yaml: good\n{}\n{}\n", told("orders: 2/s"), told("tried: 1/s")));
    let explain = ["explain", "--rules", "defer.yaml", "POST", "/orders", "--peer", "203.0.113.9"];
    let explained = printed(&run(&explain));
    let line = "\n  order: defers what exceeds orders to the queue of the program\n";
    assert!(explained.contains(line) && !explained.contains("exceeds tried"), "{explained}");
    let rules = |arguments: &[&str]| {
        let output = run(&[arguments, &["--json"]].concat());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        document["rules"].clone()
    };
    let deferring = serde_json::json!([{ "policy": "orders", "longest_body": null }]);
    assert_eq!(rules(&explain)[0]["deferring"], deferring);
    let other = ["explain", "--rules", "defer.yaml", "GET", "/orders", "--peer", "203.0.113.9"];
    assert_eq!(rules(&other)[0]["deferring"], serde_json::json!([]), "the rule does not apply");
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("defer.log");
    let line = "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"POST /orders HTTP/1.1\" 200 17\n";
    std::fs::write(&log, line.repeat(6)).expect("the log is written");
    let replayed = printed(&run(&["replay", "--rules", "defer.yaml", log.to_str().expect("it is text")]));
    assert!(
        replayed.contains(&format!("{}: such requests count as rejected", told("orders: 2/s"))),
        "{replayed}"
    );
}

#[test]
fn check_says_what_a_reload_would_change() {
    assert_eq!(
        printed(&run(&["check", "rules.yaml", "--against", "old.yaml"])),
        "0\nrules.yaml: good\nrules.yaml: changed login 3/min -> 5/min, what was spent counts; added all; removed gone; kept rest\n"
    );
}

#[test]
fn explain_names_every_rule_and_says_why_it_applies_or_not() {
    let explained =
        printed(&run(&["explain", "--rules", "rules.yaml", "POST", "/login", "--peer", "203.0.113.9"]));
    assert!(explained.starts_with("0\n") && explained.contains("203.0.113.9"), "{explained}");
    for rule in ["all", "login", "rest"] {
        assert!(explained.contains(rule), "{explained}");
    }
    let usage = printed(&run(&["explain", "--rules", "rules.yaml", "GET", "/", "-H", "nothing"]));
    assert!(usage.starts_with("2\n") && usage.contains("name: value"), "{usage}");
}

#[test]
fn explain_answers_for_each_descriptor_of_a_call() {
    let descriptors =
        ["--descriptor", "remote_address=192.0.2.7", "--descriptor", "path=/login,remote_address=192.0.2.7"];
    let explain =
        [&["explain", "--rules", "descriptors.yaml", "--domain", "edge"], &descriptors[..]].concat();
    let explained = printed(&run(&explain));
    let lines: Vec<&str> = explained.lines().collect();
    assert_eq!(lines[..2], ["0", "passes"], "{explained}");
    assert!(lines[2].starts_with("  address: asks 1 of address: 10/s (gcra) for 192.0.2.7"), "{explained}");
    assert!(explained.contains("  login: asks 1 of login: 5/min (gcra)"), "{explained}");
    let usage = printed(&run(&["explain", "--rules", "descriptors.yaml", "--descriptor", "a=b"]));
    assert!(usage.starts_with("2\n") && usage.contains("--domain"), "{usage}");
}

#[test]
fn explain_reads_a_body_from_a_file_or_from_standard_input() {
    let body = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("body.json");
    std::fs::write(&body, r#"{"model": "large", "max_tokens": 300}"#).expect("the body is written");
    let explain = |arguments: &[&str], body: &[u8]| {
        let arguments = [&["explain", "--rules", "body.yaml", "POST", "/"], arguments].concat();
        let mut child = command(&arguments);
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the command runs");
        // One that reads no body may have ended.
        _ = child.stdin.take().expect("it is piped").write_all(body);
        printed(&child.wait_with_output().expect("it ends"))
    };
    let path = body.to_str().expect("it is text");
    let explained = explain(&["--body", path], b"");
    assert!(explained.contains("asks 300 of tokens: 1000/min (gcra)"), "{explained}");
    assert!(explained.contains("asks 37 of bytes"), "{explained}");
    let form = ["-H", "content-type: application/x-www-form-urlencoded", "--body", "-"];
    let explained = explain(&form, b"model=small");
    assert!(explained.contains("tokens: not asked: field model of the body is not what"), "{explained}");
    assert!(explained.contains("asks 11 of bytes"), "{explained}");
    let explained = explain(&["--body", "-"], b"no json");
    assert!(explained.contains("asks 400 of tokens"), "in doubt the most: {explained}");
    let missing = explain(&["--body", "no.json"], b"");
    assert!(missing.starts_with("1\nno.json: error: the body cannot be read"), "{missing}");
}

/// It once made room for as many keys as the service has, a hundred gigabytes here.
#[test]
fn explain_needs_no_room_for_the_keys_of_a_service() {
    let explained = printed(&run(&["explain", "--rules", "roomy.yaml", "GET", "/", "--peer", "203.0.113.9"]));
    assert!(explained.starts_with("0\npasses\n"), "{explained}");
}

#[test]
fn explain_as_json_has_a_shape_with_a_version() {
    let arguments = ["explain", "--rules", "rules.yaml", "GET", "/", "--peer", "203.0.113.9", "--json"];
    let output = run(&arguments);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&document["version"], &document["outcome"]), (&1.into(), &"allowed".into()));
    let rules = document["rules"].as_array().expect("it is a list");
    let names: Vec<_> = rules.iter().map(|rule| (rule["name"].as_str(), rule["applies"].as_bool())).collect();
    assert_eq!(names, [(Some("all"), Some(true)), (Some("login"), Some(false)), (Some("rest"), Some(true))]);
    let shadow = &rules[2]["limits"][1]["asks"];
    assert_eq!(
        shadow,
        &serde_json::json!({
            "policy": "rest", "quotas": "rest: 60/min (gcra)", "mode": "shadow", "counts_rejected": false, "tier": null,
            "key": "203.0.113.9", "cost": 1, "bandwidth": null,
            "stands": [{ "capacity": 60, "remaining": 60, "room_after_ms": 0, "reset_after_ms": 0 }],
        })
    );
}

#[test]
fn exit_status_is_0_for_good_rules_1_for_wrong_ones_and_2_for_usage() {
    for (arguments, status) in [
        (&["explain", "--rules", "rules.yaml", "GET", "/"][..], 0),
        (&["explain", "--rules", "wrong.yaml", "GET", "/"], 1),
        (&["explain", "--rules", "no.yaml", "GET", "/"], 1),
        (&["explain", "--rules", "rules.yaml", "GET"], 2),
        (&["explain", "--rules", "rules.yaml", "GET", "/", "--peer", "nobody"], 2),
        (&["check", "rules.yaml"], 0),
        (&["check", "wrong.yaml"], 1),
        (&["forget"], 2),
    ] {
        assert_eq!(run(arguments).status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn help_fits_a_terminal_and_completions_complete() {
    for arguments in [&["--help"][..], &["help", "check"], &["help", "explain"], &["help", "replay"]] {
        let help = printed(&run(arguments));
        assert!(help.starts_with("0\n") && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&run(&["completions", shell]));
        for word in
            ["check", "explain", "replay", "schema", "completions", "peer", "store", "json", "against"]
        {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert!(printed(&run(&["schema"])).contains("json-schema.org"));
}

/// What bash would offer for the last word.
#[test]
fn completions_complete() {
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(sluicegate \"$@\"); COMP_CWORD=$#; \
        _sluicegate sluicegate \"${@: -1}\" \"${COMP_WORDS[$#-1]}\"; echo \"${COMPREPLY[@]}\"";
    for (words, expected) in
        [(&["ex"][..], "explain"), (&["explain", "--js"], "--json"), (&["check", "--ag"], "--against")]
    {
        let mut command = Command::new("bash");
        command.args(["-c", script, env!("CARGO_BIN_EXE_sluicegate")]).args(words);
        assert_eq!(printed(&command.output().expect("bash runs")), format!("0\n{expected}\n"), "{words:?}");
    }
}

#[test]
fn a_broken_pipe_ends_quietly() {
    let shell = format!("{} schema | true; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_sluicegate"));
    let output = Command::new("bash").args(["-c", &shell]).output().expect("bash runs");
    assert_eq!(printed(&output), "0\n0\n");
}

const LOG: &str = r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "POST /login HTTP/1.1" 200 17 "-" "-"
"#;

/// Runs the command with a log on its standard input.
fn replay(log: &str, arguments: &[&str]) -> String {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut command = command(&["replay", "--rules", "rules.yaml"]);
    command.args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command runs");
    // A command that refuses its arguments reads nothing.
    _ = child.stdin.take().expect("it is piped").write_all(log.as_bytes());
    printed(&child.wait_with_output().expect("it ends"))
}

#[test]
fn replay_says_what_the_rules_would_have_done() {
    let log = LOG.repeat(9);
    let table = replay(&log, &[]);
    assert!(table.starts_with("0\nstandard input: format combined, 9 lines read"), "{table}");
    assert!(table.contains("login/login") && table.contains("clients do not react"), "{table}");
    let object =
        replay(&log, &["-", "--json", "--suggest", "0.1%", "--compare", "--within-second", "together"]);
    assert!(object.starts_with("0\n{") && object.contains("\"within_second\": \"together\""), "{object}");
    for (arguments, says) in [
        (&["--only", "none"][..], "1\nthere is no rule"),
        (&["--since", "yesterday"], "1\n\"yesterday\" is not a time"),
        (
            &["--since", "2015-05-19", "--until", "2015-05-18"],
            "1\nno time is between since 2015-05-19T00:00:00Z",
        ),
        (&["--threads", "0"], "2\nerror: invalid value '0' for '--threads <N>'"),
        (&["--threads", "1000000"], "2\nerror: invalid value '1000000'"),
        (&["--format", "xml"], "2\n"),
        (&["--suggest", "all"], "2\n"),
        (
            &["--without", "yesterday"],
            "1\n\"yesterday\" is not a span: write 2015-05-17T10:05..2015-05-17T11:00",
        ),
        (&["--without", "2015-05-17..noon"], "1\n\"noon\" is not a time"),
        (&["--without-network", "192.0.2.0/40"], "1\n\"192.0.2.0/40\" is not a network"),
        (&["--reject-unusual", "90%"], "2\n"),
        (&["no.log"], "1\nno.log: it cannot be read"),
    ] {
        let said = replay(&log, arguments);
        assert!(said.starts_with(says), "{said}");
    }
}

#[test]
fn replay_fails_a_pipeline_if_more_is_rejected_than_may_be() {
    let log = LOG.repeat(9);
    assert!(replay(&log, &["--fail-above", "10%"]).starts_with("3\n"));
    assert!(replay(&log, &["--fail-above", "90%"]).starts_with("0\n"));
    assert!(replay(LOG, &["--fail-above", "0"]).starts_with("0\n"));
}

#[test]
fn l11_replay_into_a_broken_pipe_ends_quietly() {
    let command = env!("CARGO_BIN_EXE_sluicegate");
    let shell =
        format!("{command} replay --rules rules.yaml --json /dev/null | true; echo ${{PIPESTATUS[0]}}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let output = Command::new("bash").current_dir(folder).args(["-c", &shell]).output().expect("bash runs");
    assert_eq!(printed(&output), "0\n0\n");
}

#[test]
fn l12_replay_without_a_terminal_shows_no_progress() {
    let said = replay(&LOG.repeat(1_000), &[]);
    assert!(!said.contains(['\r', '\u{1b}']), "{said:?}");
}

#[test]
fn replay_tells_what_is_worth_a_second_look_on_standard_error() {
    let output = run(&["replay", "--rules", "warned.yaml", "--json", "/dev/null"]);
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.starts_with('{') && !out.contains("warning"), "{out}");
    assert!(err.contains("warned.yaml:4:3: warning: policy \"spare\" limits no request"), "{err}");
}

#[test]
fn replay_of_a_log_that_it_does_not_understand_fails() {
    let said = replay(LOG, &["--format", "json"]);
    assert!(
        said.starts_with("2\nstandard input: 1 of 1 lines are not understood in the format json"),
        "{said}"
    );
    let hidden = replay(LOG, &["--format", "json", "--hide-keys"]);
    assert!(hidden.starts_with("2\n") && !hidden.contains("192.0.2.7"), "{hidden}");
}
