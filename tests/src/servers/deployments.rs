//! What Redis is deployed as: one server, a Sentinel group, a Cluster. Most tests share one of each, and have a prefix.

use std::process::Command;
use std::sync::OnceLock;

use super::{Server, eventually};

/// A server that all tests share; each has its own prefix.
pub fn standalone() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}

/// Three sentinels that watch a master called `main` and its replica.
pub struct Sentinels {
    /// The master, as long as it is that.
    pub master: Server,
    /// Its replica.
    pub replica: Server,
    /// Those that watch both.
    pub sentinels: Vec<Server>,
}

impl Sentinels {
    /// A group of this test's own.
    pub fn start() -> Self {
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

    /// One that all tests of a binary share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Sentinels> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Its URL for the store.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/main", hosts.join(","))
    }

    /// Whether all sentinels name the replica that there was as the master.
    pub fn has_switched(&self) -> bool {
        let port = self.replica.port().to_string();
        self.sentinels.iter().all(|sentinel| {
            let address: Vec<String> = sentinel.run("SENTINEL GET-MASTER-ADDR-BY-NAME main");
            address[1] == port
        })
    }
}

/// Three primaries, each with a replica.
pub struct Cluster {
    /// Primaries and replicas.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// A cluster of this test's own, whose servers have these options.
    pub fn start(options: &[&str]) -> Self {
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

    /// One that all tests of a binary share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    /// Its URL for the store.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Whether a node sees three masters that work.
    pub fn is_whole_for(node: &Server) -> bool {
        let nodes: String = node.run("CLUSTER NODES");
        let info: String = node.run("CLUSTER INFO");
        let works = |line: &&str| line.contains("master") && !line.contains("fail");
        nodes.lines().filter(works).count() == 3 && info.contains("cluster_slots_ok:16384")
    }

    /// How the cluster calls a node.
    pub fn id_of(node: &Server) -> String {
        node.run("CLUSTER MYID")
    }

    /// The replica of one of the first three nodes.
    pub fn replica_of(&self, master: usize) -> &Server {
        let id = Self::id_of(&self.nodes[master]);
        let nodes: String = self.nodes[master].run("CLUSTER NODES");
        let line = nodes.lines().find(|line| line.contains("slave") && line.contains(&id)).unwrap();
        self.nodes.iter().find(|node| line.contains(&format!(":{}@", node.port()))).unwrap()
    }
}
