//! The command `serve`: a process that is asked, told to reload, and told to end.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::{command, printed, run};

const RULES: &str = "version: 1\npolicies: { mail: { quota: 10/h } }\nrules: []\n";

/// The command while it serves a file of its own.
struct Serving {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
    address: String,
    rules: PathBuf,
}

impl Serving {
    fn with(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{name}"));
        fs::create_dir_all(&folder).expect("the folder is made");
        let rules = folder.join("rules.yaml");
        fs::write(&rules, RULES).expect("the rules are written");
        let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--rules"]);
        command.arg(&rules).args(arguments).envs(variables.iter().copied());
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the command runs");
        let log = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        let mut serving = Self { process, log, address: String::new(), rules };
        let line = serving.says("serving");
        serving.address = line.rsplit_once("://").expect("it says where").1.to_owned();
        serving
    }

    /// The next line of its log with this word.
    fn says(&mut self, word: &str) -> String {
        let mut lines = self.log.by_ref().map(|line| line.expect("the log is text"));
        lines.find(|line| line.contains(word)).unwrap_or_else(|| panic!("it says {word:?} before it ends"))
    }

    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        let request = format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success());
    }

    fn ends(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.process.wait().expect("it is ours").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        _ = self.process.kill();
    }
}

const CHECK: &str = r#"{"policy": "mail", "key": "ada", "cost": 8}"#;

#[test]
fn serve_answers_follows_its_file_and_ends_when_it_is_told_to() {
    let mut serving = Serving::with("answers", &[], &[]);
    let answer = serving.ask("POST /v1/check", CHECK);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"remaining\":2"), "{answer}");
    fs::write(&serving.rules, RULES.replace("10/h", "20/h")).expect("the rules are written");
    serving.signal("-HUP");
    serving.says("changed mail 10/h -> 20/h");
    let answer = serving.ask("POST /v1/check", CHECK);
    assert!(answer.contains("\"remaining\":4"), "{answer}");
    let metrics = serving.ask("GET /metrics", "");
    assert!(metrics.contains("rate_limit_units_total{policy=\"mail\",kind=\"spent\"} 16"), "{metrics}");
    assert_eq!(serving.ends(), Some(0));
}

#[test]
fn options_and_variables_are_the_same_settings() {
    let secret = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve-secret");
    fs::write(&secret, "of a file, and long enough\n").expect("the secret is written");
    let by_option = Serving::with("option", &["--secret-file", secret.to_str().expect("text")], &[]);
    let by_variable =
        Serving::with("variable", &[], &[("SLUICEGATE_SECRET", "of a variable, and long enough")]);
    for serving in [by_option, by_variable] {
        assert!(serving.ask("POST /v1/check", CHECK).starts_with("HTTP/1.1 401 "));
    }
    let small = Serving::with("small", &[], &[("SLUICEGATE_MAX_BODY", "10")]);
    assert!(small.ask("POST /v1/check", CHECK).starts_with("HTTP/1.1 413 "));
}

/// It once ended with 101, or lost the thread that follows its rules, and the next request its connection.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve-mute");
    fs::create_dir_all(&folder).expect("the folder is made");
    let rules = folder.join("rules.yaml");
    fs::write(&rules, RULES).expect("the rules are written");
    let address = format!("127.0.0.1:{}", sluicegate_tests::servers::free_port());
    let mut command = command(&["serve", "--listen", &address, "--rules"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("there is one");
    let process = command.arg(&rules).stderr(full).spawn().expect("the command runs");
    let log = BufReader::new(
        Command::new("true").stderr(Stdio::piped()).spawn().expect("it runs").stderr.take().expect("piped"),
    )
    .lines();
    let serving = Serving { process, log, address, rules };
    while TcpStream::connect(&serving.address).is_err() {}
    fs::write(&serving.rules, RULES.replace("10/h", "20/h")).expect("the rules are written");
    let peek = CHECK.replace("8", "0");
    while !serving.ask("POST /v1/peek", &peek).contains("\"capacity\":20") {}
    fs::write(&serving.rules, RULES.replace("10/h", "30/h")).expect("the rules are written");
    while !serving.ask("POST /v1/peek", &peek).contains("\"capacity\":30") {}
    assert!(serving.ask("GET /readyz", "").starts_with("HTTP/1.1 200 "));
    assert_eq!(serving.ends(), Some(0));
}

/// Its reader once waited for a writer on a worker, and SIGTERM ended nothing.
#[test]
fn a_key_that_became_a_pipe_is_told_and_the_process_ends_when_it_is_told_to() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve-pipe");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder is made");
    let [certificate, key] =
        ["cert.pem", "key.pem"].map(|name| folder.join(name).to_str().expect("text").to_owned());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    fs::write(&certificate, made.cert.pem()).expect("it is written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("it is written");
    let mut serving = Serving::with("piped", &["--tls-cert", &certificate, "--tls-key", &key], &[]);
    fs::remove_file(&key).expect("it is there");
    assert!(Command::new("mkfifo").arg(&key).status().expect("there is mkfifo").success());
    serving.signal("-HUP");
    let line = serving.says("former certificates");
    assert!(line.contains("key.pem: it is not a file"), "{line}");
    assert_eq!(serving.ends(), Some(0));
}

/// One client wrote 3,595 lines a second by resets of HTTP/2, each by a dependency.
#[test]
fn lines_of_dependencies_are_left_out_below_errors() {
    let mut serving = Serving::with("levels", &["--log", "trace"], &[]);
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&serving.address).expect("it listens");
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\x03\0\0\0\x01")
            .expect("it reads");
        _ = stream.read_to_end(&mut Vec::new());
    }
    serving.signal("-TERM");
    for line in serving.log.by_ref() {
        let line = line.expect("the log is text");
        assert!(line.contains(" sluicegate") || line.contains("ERROR"), "{line}");
    }
}

#[test]
fn what_keeps_it_from_serving_is_said_and_ends_it() {
    for (arguments, said) in [
        (&["--rules", "no.yaml"][..], "no.yaml: error: it cannot be read"),
        (&["--rules", "rules.yaml", "--listen", "0.0.0.0:0"], "--insecure-open"),
        (&["--rules", "rules.yaml", "--secret-file", "wrong.yaml"], "at least 16 are needed"),
        (&["--rules", "rules.yaml", "--store", "http://127.0.0.1"], "error: "),
        (
            &["--rules", "memory.yaml", "--store", "redis://127.0.0.1"],
            "names a store, and --store names another",
        ),
        (
            &["--rules", "rules.yaml", "--tls-cert", "wrong.yaml", "--tls-key", "wrong.yaml"],
            "no PEM certificate",
        ),
    ] {
        let all: Vec<&str> = [&["serve"], arguments].concat();
        let output = printed(&run(&all));
        assert!(output.starts_with("1\n") && output.contains(said), "{arguments:?}: {output}");
    }
    let output = printed(&run(&["serve", "--rules", "rules.yaml", "--drain", "2d"]));
    assert!(output.starts_with("2\n") && output.contains("from 1ms to 1d"), "{output}");
}
