//! Real servers on ports of their own, which end with the test process, however that ends.

pub mod deployments;
pub mod persistent;
pub mod skewed;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue};

/// A server that belongs to one test, which may stop, freeze or kill it.
pub struct Server {
    port: u16,
    options: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    folder: PathBuf,
    running: Option<Running>,
}

struct Running {
    server: Child,
    /// Ends the server when its standard input is closed: by us, or by the kernel when this process is gone.
    guard: Child,
}

impl Server {
    /// A server with the options that all have.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with further options.
    pub fn start_with(options: &[&str]) -> Self {
        let mut server = Self::reserve(options);
        server.restart();
        server
    }

    /// A port where a server will be, but is not yet.
    pub fn reserve(options: &[&str]) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("sluicegate-redis-{}-{port}", std::process::id()));
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Self { port, options, environment: Vec::new(), folder, running: None }
    }

    /// Starts it, on the same port as before if there was a before, and waits until it answers.
    pub fn restart(&mut self) {
        self.stop();
        std::fs::create_dir_all(&self.folder).expect("there is room for a folder");
        let mut command = Command::new("redis-server");
        if let Some(first) = self.options.first().filter(|option| !option.starts_with("--")) {
            // A sentinel rewrites its configuration, so it has to be a file.
            std::fs::write(self.folder.join("sentinel.conf"), first).unwrap();
            command.args(["sentinel.conf", "--sentinel", "--port", &self.port.to_string()]);
        } else {
            command.args(["--port", &self.port.to_string(), "--save", "", "--appendonly", "no"]);
            // A replica that has never seen its master's data is not promoted, and would first see it after five seconds.
            command.args(["--repl-diskless-sync-delay", "0"]).args(known(&self.options));
        }
        command
            .current_dir(&self.folder)
            .args(["--bind", "127.0.0.1"])
            .envs(self.environment.iter().cloned());
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.expect("redis-server is installed: tests/run redis does that");
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -9 \"$0\"; rm -rf \"$1\""])
            .arg(server.id().to_string())
            .arg(&self.folder)
            .stdin(Stdio::piped())
            .spawn();
        self.running = Some(Running { server, guard: guard.expect("there is a shell") });
        let port = self.port;
        eventually("a new redis-server answers", || {
            // `PING` may be refused for want of a password, and is then answered all the same.
            let connection = Client::open(("127.0.0.1", port)).unwrap().get_connection();
            connection.is_ok() || connection.err().is_some_and(|error| error.code().is_some())
        });
    }

    /// Kills it at once; the port stays ours.
    pub fn stop(&mut self) {
        if let Some(Running { mut server, mut guard }) = self.running.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
            let _ = server.wait();
        }
    }

    /// Sends a signal: `STOP` makes it hang, `CONT` go on.
    pub fn signal(&self, signal: &str) {
        let server = &self.running.as_ref().expect("it runs").server;
        let status = Command::new("kill").arg(format!("-{signal}")).arg(server.id().to_string()).status();
        assert!(status.unwrap().success(), "kill -{signal}");
    }

    /// Where it works; gone when it ends.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// What is in its environment from its next start on.
    pub fn set_environment(&mut self, environment: [(&'static str, PathBuf); 2]) {
        self.environment = environment.into();
    }

    /// Waits until it has its master's data, if it has a master.
    pub fn is_synced(&self) {
        eventually("the replica is in sync", || {
            let state: String = self.run("INFO replication");
            state.contains("role:master") || state.contains("master_link_status:up")
        });
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL for the store.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection beside the store's.
    pub fn admin(&self) -> Connection {
        Client::open(("127.0.0.1", self.port)).unwrap().get_connection().expect("the server answers")
    }

    /// Runs one command, written as in a shell.
    pub fn run<T: FromRedisValue>(&self, command: &str) -> T {
        run(&mut self.admin(), command)
    }

    /// Whether it says that it is a replica. A master that becomes one closes all connections, this one too, and says nothing then.
    pub fn is_replica(&self) -> bool {
        let connection = Client::open(("127.0.0.1", self.port)).unwrap().get_connection();
        let said =
            connection.and_then(|mut it| redis::cmd("INFO").arg("replication").query::<String>(&mut it));
        said.is_ok_and(|said| said.contains("role:slave"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The options without those that the server does not know, and does not need: Redis 6.2 allows always what they allow.
fn known(options: &[String]) -> impl Iterator<Item = &String> {
    static IS_OLD: LazyLock<bool> = LazyLock::new(|| {
        let version = Command::new("redis-server").arg("--version").output();
        version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains(" v=6."))
    });
    let (pairs, rest) = options.as_chunks::<2>();
    let allows = |[name, _]: &&[String; 2]| name.starts_with("--enable-") && *IS_OLD;
    pairs.iter().filter(move |pair| !allows(pair)).flatten().chain(rest)
}

/// Runs one command, written as in a shell.
pub fn run<T: FromRedisValue>(connection: &mut Connection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut built = redis::cmd(words.next().unwrap());
    built.arg(words.collect::<Vec<_>>());
    built.query(connection).unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// What the server's process has used of a CPU, in microseconds.
///
/// # Panics
/// When the server does not say it.
pub fn cpu_us(admin: &mut Connection) -> f64 {
    let info: String = run(admin, "INFO cpu");
    let seconds = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|seconds| seconds.trim().parse().ok()).expect("the server counts its time")
    };
    (seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1e6
}

/// How many scripts the server has run.
pub fn script_calls(admin: &mut Connection) -> u64 {
    let info: String = run(admin, "INFO commandstats");
    let of = |line: &str| -> Option<u64> {
        line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1.split(',').next()?.parse().ok()
    };
    info.lines().filter_map(of).sum()
}

/// A port below those that the kernel gives to clients, so that nobody else gets it while our server is down. The nodes of a
/// cluster meet ten thousand above it: Redis 6.2 knows no other place.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 10_000 + u16::try_from(std::process::id() % 33).unwrap() * 300;
    loop {
        // Relaxed: only the number has to be new.
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
        if [port, port + 10_000].iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()) {
            return port;
        }
    }
}

/// Waits until something is so, for far longer than a loaded machine needs.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    assert!(is_so_within(Duration::from_secs(60), is_so), "not within a minute: {what}");
}

/// Waits until something is so, and says whether it came within this time.
pub fn is_so_within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
