//! SIGHUP, sent to a process that has rules in force.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use axum::Router;
use http::StatusCode;
use sluicegate::MemoryStore;
use sluicegate::rules::{Rules, Variables};
use sluicegate_tests::process;
use tokio::net::TcpListener;

use crate::rules::folder::Folder;
use crate::support::Client;

const RULES: &str = "SLUICEGATE_TEST_RULES";

const TEXT: &str = "\
version: 1
policies:
  login: { quota: 2/h }
rules:
  - { name: all, limit: login, key: client }
";

/// What the process is that gets the signals: a server with these rules. It says where it is, and ends with its parent.
async fn serve_until_the_parent_is_gone() {
    tracing_subscriber::fmt().with_ansi(false).init();
    let path = std::env::var_os(RULES).expect("the parent says which");
    let rules = Rules::open(MemoryStore::new(), path, Variables::none()).expect("they are good");
    rules.reload_on_sighup().expect("the signal is free");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
    println!("at {}", listener.local_addr().unwrap());
    let app = Router::new().fallback(async || "hello").layer(rules.layer());
    let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
    tokio::spawn(async { axum::serve(listener, app).await.expect("the server runs") });
    let wait = || std::io::stdin().read_to_end(&mut Vec::new());
    _ = tokio::task::spawn_blocking(wait).await;
}

/// The process, and the lines that it says.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    /// The lines up to one that has this text.
    fn says(&self, text: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            said.push(line.unwrap_or_else(|_| panic!("{text:?} is not said: {said:#?}")));
            if said.last().is_some_and(|line| line.contains(text)) {
                return said;
            }
        }
    }

    fn hang_up(&self) {
        let sent = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success(), "the process is there");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_hung_up_on_reads_its_rules_again_and_says_what_came_of_it() {
    if process::is_alone() {
        return serve_until_the_parent_is_gone().await;
    }
    let folder = Folder::with(TEXT);
    let test = "rules::sighup::a_process_that_is_hung_up_on_reads_its_rules_again_and_says_what_came_of_it";
    let mut child = process::begin_again(test, [(RULES, folder.file().as_os_str())] as [(&str, &OsStr); 1]);
    let (tell, lines) = channel();
    let output = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    let server = Server { child, lines };
    let said = server.says("at 127.0.0.1:");
    let (_, address) = said.last().expect("it said so").split_once("at ").expect("it said so");
    let mut client = Client::connect(address.parse().expect("an address")).await;
    let mut passes = async || {
        let mut passed = 0;
        while client.get("/").await.status() == StatusCode::OK {
            passed += 1;
        }
        passed
    };
    assert_eq!(passes().await, 2);

    folder.write(&TEXT.replace("2/h", "5/h"));
    assert_eq!(passes().await, 0, "nobody has hung up yet");
    server.hang_up();
    let said = server.says("rules: ");
    assert!(said.concat().contains("rules: changed login 2/h -> 5/h, what was spent counts"), "{said:#?}");
    assert_eq!(passes().await, 3);

    folder.write(&TEXT.replace("2/h", "5/fortnight"));
    server.hang_up();
    let said = server.says("^^^^").join("\n");
    assert!(
        said.contains("the rules stay as they were")
            && said.contains("/rules.yaml:3:21: error: \"5/fortnight\""),
        "{said}"
    );
    server.hang_up();
    assert_eq!(server.says("the file is wrong as before").len(), 1, "its carets are said once");
    folder.write(&TEXT.replace("2/h", "5/h"));
    server.hang_up();
    server.says("right again");
    server.hang_up();
    server.says("the file is the same");
    assert_eq!(passes().await, 0, "the same rules, and what was spent counts");
}
