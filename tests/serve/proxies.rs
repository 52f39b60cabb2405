//! Real proxies, with the files of `examples/serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluicegate_tests::servers::free_port;

use crate::serve::crowd::App;
use crate::serve::processes::{Running, Sluicegate, folder};

/// A proxy in front of a service.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    _running: Running,
}

/// Where the parties of a file are.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) app: SocketAddr,
}

impl Around {
    pub(crate) fn of(serving: &Sluicegate, app: &App) -> Self {
        Self { http: serving.http, grpc: serving.grpc, app: app.address }
    }
}

impl Proxy {
    pub(crate) fn nginx(around: Around, change: impl Fn(String) -> String) -> Self {
        Self::start("nginx.conf", around, "listen 8000", "listen {address}", |folder, site| {
            let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
            let paths = paths.map(|of| format!("{of}_temp_path {of};")).concat();
            let text = format!(
                "daemon off; master_process off; pid nginx.pid; events {{}} http {{ access_log off; {paths} {} }}",
                change(site)
            );
            std::fs::write(folder.join("nginx.conf"), text).unwrap();
            // Debian has it where only root looks.
            let path = std::env::var("PATH").unwrap_or_default();
            let mut command = Command::new("nginx");
            command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin"));
            command.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
            command
        })
    }

    pub(crate) fn caddy(around: Around, change: impl Fn(String) -> String) -> Self {
        Self::start("Caddyfile", around, ":8000 ", "http://{address} ", |folder, site| {
            std::fs::write(folder.join("Caddyfile"), format!("{{\n\tadmin off\n}}\n{}", change(site)))
                .unwrap();
            let mut command = Command::new("caddy");
            command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
            command.env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
            command
        })
    }

    /// Envoy with one of its files.
    pub(crate) fn envoy(file: &str, around: Around, change: impl Fn(String) -> String) -> Self {
        let listen = ("address: 0.0.0.0, port_value: 8000", "address: {ip}, port_value: {port}");
        Self::start(file, around, listen.0, listen.1, |folder, text| {
            std::fs::write(folder.join("envoy.yaml"), change(text)).unwrap();
            let mut command =
                Command::new(std::env::var_os("SLUICEGATE_ENVOY").unwrap_or_else(|| "envoy".into()));
            command.args(["-c", "envoy.yaml", "-l", "warn", "--disable-hot-restart", "--concurrency", "2"]);
            command
        })
    }

    fn start(
        file: &str,
        Around { http, grpc, app }: Around,
        listen: &str,
        at: &str,
        command: impl FnOnce(&Path, String) -> Command,
    ) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 9], free_port()));
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/serve").join(file);
        let mut text = std::fs::read_to_string(path).unwrap();
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let at = at.replace("{address}", &address.to_string()).replace("{ip}", &ip).replace("{port}", &port);
        for (shown, here) in [
            (listen, at),
            ("127.0.0.1:8080", http.to_string()),
            ("127.0.0.1:3000", app.to_string()),
            ("port_value: 8081", format!("port_value: {}", grpc.port())),
            ("port_value: 8080", format!("port_value: {}", http.port())),
            ("port_value: 3000", format!("port_value: {}", app.port())),
        ] {
            text = text.replace(shown, &here);
        }
        let folder = folder(file);
        let command = command(&folder, text);
        Self { address, _running: Running::start(command, &folder, &[address]) }
    }
}
