//! Faults of the connection.

use std::time::Duration;

use crate::harness::{Excuse, NOTHING, Setup};
use crate::machine::turn;
use crate::proxy::{Flow, Proxy};
use crate::servers::Server;

#[test]
fn f06_replies_that_vanish() {
    let _turn = turn();
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let rig = Setup::at(proxy.url()).start();
    rig.during(Duration::from_secs(3), || proxy.replies(Flow::Hold), || proxy.replies(Flow::Pass));
    rig.finish(Excuse { ..NOTHING });
}
