//! A host name that stops to resolve, or leads elsewhere.

use std::thread::sleep;
use std::time::Duration;

use sluicegate_tests::servers::Server;

use crate::harness::{Excuse, NOTHING, Setup};
use crate::machine::turn;

const HOSTS: &str = "/etc/hosts";

/// A name of this test alone, in the file that the system's resolver reads first; gone when this is.
struct Name(String);

impl Name {
    fn reserve() -> Self {
        Self(format!("sluicegate-{}.invalid", std::process::id()))
    }

    /// Makes it lead to an address, or nowhere. The file may be written to in place only, as in a container.
    fn lead_to(&self, address: Option<&str>) -> std::io::Result<()> {
        let hosts = std::fs::read_to_string(HOSTS)?;
        let mut lines: Vec<_> =
            hosts.lines().filter(|line| !line.ends_with(&self.0)).map(str::to_owned).collect();
        lines.extend(address.map(|address| format!("{address} {}", self.0)));
        std::fs::write(HOSTS, lines.join("\n") + "\n")
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = self.lead_to(None);
    }
}

#[test]
fn f59_a_name_is_resolved_anew_for_every_attempt() {
    let _turn = turn();
    let name = Name::reserve();
    if let Err(error) = name.lead_to(Some("127.0.0.1")) {
        // Who is not root cannot change where a name leads, and has said so by running the tests as somebody else.
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        eprintln!("f59 was not run: {HOSTS} may only be changed by root");
        return;
    }
    let server = Server::start();
    let rig = Setup::at(format!("redis://{}:{}", name.0, server.port())).start();
    rig.fault(|| {
        name.lead_to(None).unwrap();
        server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
    });
    sleep(Duration::from_secs(2));
    assert!(!rig.redis.is_connected(), "there is no such name");
    // An address of this machine where nobody listens.
    name.lead_to(Some("127.0.0.9")).unwrap();
    sleep(Duration::from_secs(2));
    assert!(!rig.redis.is_connected(), "nobody is there");
    rig.heal(|| name.lead_to(Some("127.0.0.1")).unwrap());
    rig.finish(Excuse { lost_answers: 5, ..NOTHING }).nobody_waited(Duration::from_millis(1_100));
}
