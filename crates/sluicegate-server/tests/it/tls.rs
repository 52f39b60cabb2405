//! TLS, and certificates of clients.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use http::Uri;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluicegate_server::{ServeErrorKind, ServerBuilder, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::grpc::{call, descriptor};
use crate::support::{RULES, Served};

/// An authority, and a certificate with its key for the server and for a client, as files.
struct Files {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new(name: &str) -> Self {
        _ = rustls::crypto::ring::default_provider().install_default();
        let folder = std::env::temp_dir().join(format!("sluicegate-server-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
        let files = Self { folder, authority };
        files.issue("server");
        files.issue("client");
        files
    }

    /// Writes a certificate of the authority.
    fn issue(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn tls(&self, authority: Option<PathBuf>) -> Tls {
        Tls::read(self.path("server.pem"), self.path("server.key"), authority).unwrap()
    }

    /// The connection of a client that shows its certificate or none.
    async fn connect(
        &self,
        address: SocketAddr,
        shows: bool,
        protocol: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("authority.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = if shows {
            let chain = vec![CertificateDer::from_pem_file(self.path("client.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        } else {
            config.with_no_client_auth()
        };
        let mut config = config;
        config.alpn_protocols = vec![protocol.into()];
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// What such a client gets, or why it gets nothing.
    async fn get(&self, served: &Served, shows: bool) -> io::Result<String> {
        let mut stream = self.connect(served.address, shows, "http/1.1").await?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[tokio::test]
async fn with_a_certificate_it_speaks_tls_and_a_new_one_is_read_again() {
    let files = Files::new("tls");
    let tls = files.tls(None);
    let served = Served::with(RULES, |builder| builder.tls(tls.clone())).await;
    assert!(files.get(&served, false).await.unwrap().starts_with("HTTP/1.1 200 "));
    assert!(served.get("/healthz").send().await.is_err(), "and nothing else");

    let serial = files.path("server.pem");
    let before = std::fs::read_to_string(&serial).unwrap();
    files.issue("server");
    assert_ne!(std::fs::read_to_string(&serial).unwrap(), before);
    tls.reload().unwrap();
    assert!(files.get(&served, false).await.unwrap().starts_with("HTTP/1.1 200 "));
    std::fs::write(&serial, "nothing").unwrap();
    assert!(tls.reload().is_err());
    assert!(files.get(&served, false).await.is_ok(), "what was read before stays");
}

#[tokio::test]
async fn where_clients_show_certificates_others_get_nothing_and_no_secret_is_needed() {
    let files = Files::new("clients");
    let tls = files.tls(Some(files.path("authority.pem")));
    let served = Served::with(RULES, |builder| builder.tls(tls).http("0.0.0.0:0".parse().unwrap())).await;
    assert!(files.get(&served, true).await.unwrap().starts_with("HTTP/1.1 200 "));
    assert!(!files.get(&served, false).await.is_ok_and(|answer| answer.contains("200")));
}

#[tokio::test]
async fn the_same_certificates_hold_over_grpc() {
    let files = Files::new("grpc");
    let tls = files.tls(Some(files.path("authority.pem")));
    let open = |builder: ServerBuilder| builder.tls(tls).grpc("0.0.0.0:0".parse().unwrap());
    let served = Served::with(RULES, open).await;
    let address = SocketAddr::from(([127, 0, 0, 1], served.grpc.port()));
    for shows in [true, false] {
        let files = &files;
        let connected = files.connect(address, shows, "h2").await;
        let answer = async {
            let mut stream = Some(TokioIo::new(connected?));
            let connector = tower::service_fn(move |_: Uri| {
                ready(stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
            });
            let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
            let channel = endpoint.connect_with_connector(connector).await.map_err(io::Error::other)?;
            let call = call("edge", vec![descriptor(&[("user", "ada")])]);
            RateLimitServiceClient::new(channel).should_rate_limit(call).await.map_err(io::Error::other)
        };
        assert_eq!(answer.await.is_ok(), shows);
    }
}

#[test]
fn what_is_wrong_with_a_file_names_it() {
    let files = Files::new("wrong");
    let good = |name: &str| files.path(name);
    std::fs::write(good("empty.pem"), "").unwrap();
    _ = std::process::Command::new("mkfifo").arg(good("pipe.key")).status();
    for (certificate, key, authority, said) in [
        ("none.pem", "server.key", None, "none.pem: it cannot be read"),
        ("empty.pem", "server.key", None, "empty.pem: it has no PEM certificate"),
        ("server.pem", "server.pem", None, "server.pem: it has no private key"),
        ("server.pem", "client.key", None, "do not belong together"),
        ("server.pem", "server.key", Some("empty.pem"), "empty.pem: it has no PEM certificate"),
        ("server.pem", "pipe.key", None, "pipe.key: it is not a file"),
    ] {
        let error = Tls::read(good(certificate), good(key), authority.map(good)).unwrap_err();
        assert_eq!(error.kind(), ServeErrorKind::Tls);
        assert!(error.to_string().contains(said), "{error}");
    }
}
