//! A real nginx in front of a server. All of 127.0.0.0/8 is this machine, so it has addresses of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// An nginx that ends with the test, or with the test process.
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    nginx: Child,
    /// Ends nginx when its standard input is closed: by us, or by the kernel when this process is gone.
    guard: Child,
}

impl Nginx {
    /// Passes everything on to `upstream`, from 127.0.0.9, with these directives.
    pub(crate) fn in_front_of(upstream: &str, directives: &str) -> Self {
        let upstream = upstream.to_owned();
        let unix = upstream.starts_with("unix:");
        let bind = if unix { "" } else { "proxy_bind 127.0.0.9;" };
        let location = format!("location / {{ proxy_pass http://{upstream}; {bind} {directives} }}");
        Self::start(&|port| {
            format!("server {{ listen 127.0.0.9:{port}; underscores_in_headers on; {location} }}")
        })
    }

    /// Two of them, one behind the other.
    pub(crate) fn twice_in_front_of(upstream: SocketAddr, directives: &str) -> Self {
        let (inner, _) = Self::free_port();
        Self::start(&|port| {
            format!(
                "server {{ listen 127.0.0.9:{port}; location / {{
                     proxy_pass http://127.0.0.8:{inner}; proxy_bind 127.0.0.9; {directives} }} }}
                 server {{ listen 127.0.0.8:{inner}; location / {{
                     proxy_pass http://{upstream}; proxy_bind 127.0.0.8; {directives} }} }}"
            )
        })
    }

    /// With these directives of its `http` block, which are told the port that it is to listen on, at 127.0.0.9.
    pub(crate) fn start(servers: &dyn Fn(u16) -> String) -> Self {
        let (port, folder) = Self::free_port();
        std::fs::create_dir_all(&folder).expect("there is room for a folder");
        let paths =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|of| format!("{of}_temp_path {of};"));
        let configuration = format!(
            "daemon off; master_process off; pid nginx.pid; events {{}} http {{ access_log off; {} {} }}",
            paths.concat(),
            servers(port)
        );
        std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("nginx");
        // Debian has it where only root looks.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin"));
        command.arg("-p").arg(&folder).args(["-c", "nginx.conf", "-e", "stderr"]);
        let nginx = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut nginx = nginx.expect("nginx is installed: tests/run http does that");
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -9 \"$0\"; rm -rf \"$1\""])
            .arg(nginx.id().to_string())
            .arg(&folder)
            .stdin(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let address = SocketAddr::from(([127, 0, 0, 9], port));
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(nginx.try_wait().unwrap().is_none(), "nginx ended at once");
            assert!(Instant::now() < deadline, "nginx does not listen within 20 seconds");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { address, nginx, guard }
    }

    /// A port below those that the kernel gives to clients, and a folder that goes with it.
    pub(crate) fn free_port() -> (u16, PathBuf) {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let base = 10_000 + u16::try_from(std::process::id() % 180).unwrap() * 100;
        loop {
            // Relaxed: only the number has to be new.
            let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
            if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
                let folder = format!("sluicegate-nginx-{}-{port}", std::process::id());
                return (port, std::env::temp_dir().join(folder));
            }
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = self.nginx.wait();
    }
}
