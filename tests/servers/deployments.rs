//! What Redis is deployed as: one server, a Sentinel group, a Cluster. Most tests share one of each, and have a prefix.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::process::Command;
use std::sync::OnceLock;

use crate::servers::{Server, eventually};

/// A server that all tests share; each has its own prefix.
pub(crate) fn standalone() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}

/// Three sentinels that watch a master called `main` and its replica.
pub(crate) struct Sentinels {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    pub(crate) sentinels: Vec<Server>,
}

impl Sentinels {
    pub(crate) fn start() -> Self {
        let master = Server::start();
        let replica = Server::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
        let watch = format!(
            "sentinel monitor main 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 3000\n",
            master.port()
        );
        let sentinels = (0..3).map(|_| Server::start_with(&[&watch])).collect();
        let group = Self { master, replica, sentinels };
        group.replica.is_synced();
        for sentinel in &group.sentinels {
            eventually("the sentinels know each other and the replica", || {
                let state: std::collections::HashMap<String, String> = sentinel.run("SENTINEL MASTER main");
                state["num-other-sentinels"] == "2" && state["num-slaves"] == "1"
            });
        }
        group
    }

    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Sentinels> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/main", hosts.join(","))
    }
}

/// Three primaries, each with a replica.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) fn start(options: &[&str]) -> Self {
        let nodes: Vec<_> = (0..6)
            .map(|_| {
                let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
                Server::start_with(&[&cluster, options].concat())
            })
            .collect();
        let create = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())))
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .expect("redis-cli is installed with redis-server");
        assert!(create.status.success(), "{}", String::from_utf8_lossy(&create.stdout));
        for node in &nodes {
            eventually("all nodes see the whole cluster", || {
                let nodes: String = node.run("CLUSTER NODES");
                let info: String = node.run("CLUSTER INFO");
                info.contains("cluster_state:ok") && nodes.matches("slave").count() == 3
            });
            node.is_synced();
        }
        Self { nodes }
    }

    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }
}
