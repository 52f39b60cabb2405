//! Processes that end with the test.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use sluicegate_tests::servers::{Server, eventually, free_port};

/// A process, which is killed when this is dropped, or when the test process ends.
pub(crate) struct Running {
    process: Child,
    guard: Child,
    log: Option<JoinHandle<Vec<String>>>,
}

impl Running {
    /// Starts it in this folder, and waits until it listens at all of these addresses.
    pub(crate) fn start(mut command: Command, folder: &Path, addresses: &[SocketAddr]) -> Self {
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let name = format!("{:?}", command.get_program());
        let mut process = command.spawn().unwrap_or_else(|error| {
            panic!("{name} cannot be started, which ./tests/run serve installs: {error}")
        });
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -9 \"$0\" 2>/dev/null"])
            .arg(process.id().to_string())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let log = std::thread::spawn(move || stderr.lines().map_while(Result::ok).collect());
        let mut running = Self { process, guard, log: Some(log) };
        eventually(&format!("{name} listens"), || {
            if running.process.try_wait().unwrap().is_some() {
                panic!("{name} ended at once: {:#?}", running.log());
            }
            addresses.iter().all(|address| TcpStream::connect(address).is_ok())
        });
        running
    }

    fn log(&mut self) -> Vec<String> {
        self.log.take().map(|log| log.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        _ = self.guard.wait();
        _ = self.process.wait();
    }
}

/// A folder that is empty, and that goes with the test process' temporary files.
pub(crate) fn folder(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only the number has to be new.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{name}-{number}"));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// These rules on a Redis that is waited for: on a busy machine, what decides in its place would admit more.
pub(crate) fn on_redis(rules: &str, redis: &Server) -> String {
    let store = format!("version: 1\nstore: {{ redis: \"{}\", deadline: 10s }}\n", redis.url());
    rules.replacen("version: 1\n", &store, 1)
}

/// The command, as it was built beside this test.
pub(crate) fn program() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("../sluicegate")
}

/// The command `sluicegate serve`, which may be killed and started again at the same address.
pub(crate) struct Sluicegate {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    folder: PathBuf,
    options: Vec<String>,
    running: Option<Running>,
}

impl Sluicegate {
    /// Serves these rules with these options.
    pub(crate) fn serve(rules: &str, options: &[&str]) -> Self {
        let [http, grpc] = [(); 2].map(|()| (Ipv4Addr::LOCALHOST, free_port()).into());
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut serving = Self { http, grpc, folder: folder("rules"), options, running: None };
        serving.change(rules);
        serving.start();
        serving
    }

    /// Writes the rules file, as an editor does.
    pub(crate) fn change(&self, rules: &str) {
        std::fs::write(self.folder.join("new"), rules).unwrap();
        std::fs::rename(self.folder.join("new"), self.folder.join("rules.yaml")).unwrap();
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(program());
        command.args(["serve", "--rules", "rules.yaml", "--listen", &self.http.to_string()]);
        command.args(["--grpc", &self.grpc.to_string()]);
        command.args(&self.options);
        self.running = Some(Running::start(command, &self.folder, &[self.http, self.grpc]));
    }

    /// The memory that it has now.
    pub(crate) fn rss_kib(&self) -> u64 {
        let process = self.running.as_ref().map(|running| running.process.id()).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        let mut running = self.running.take().unwrap();
        let told = Command::new("kill").arg(running.process.id().to_string()).status().unwrap();
        assert!(told.success());
        assert!(running.process.wait().unwrap().success(), "{:#?}", running.log());
    }

    pub(crate) fn kill(&mut self) {
        self.running = None;
    }
}
