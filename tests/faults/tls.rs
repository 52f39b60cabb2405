//! TLS that is right, and TLS that is wrong in each of the usual ways.
//!
//! Which authorities are trusted is read from the environment, so the service is a process of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use sluicegate_core::Policy;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::DecidedBy;
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::{Server, free_port};

use crate::machine::{note_panics, panics_of, turn};

const CHILD: &str = "SLUICEGATE_FAULTS_TLS_PORTS";
const NAME: &str = "tls::f56_tls_that_cannot_be_trusted_is_no_connection_and_no_panic";

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server that speaks TLS on a second port, with a certificate for this machine.
fn server(by: &CertifiedIssuer<'_, KeyPair>, folder: &Path, name: &str, until: i32) -> (Server, u16) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let certificate = params.signed_by(&key, by).unwrap();
    let file = |kind: &str, text: String| {
        let path = folder.join(format!("{name}.{kind}"));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) = (file("crt", certificate.pem()), file("key", key.serialize_pem()));
    let port = free_port();
    let server = Server::start_with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &certificate,
        "--tls-auth-clients",
        "no",
    ]);
    (server, port)
}

#[test]
fn f56_tls_that_cannot_be_trusted_is_no_connection_and_no_panic() {
    if let Ok(ports) = std::env::var(CHILD) {
        let ports: Vec<u16> = ports.split(',').map(|port| port.parse().unwrap()).collect();
        return talks_to_the_first_and_not_to_the_others(&ports);
    }
    let _turn = turn();
    let folder = std::env::temp_dir().join(format!("sluicegate-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (ours, others) = (authority(), authority());
    let trusted = folder.join("trusted.pem");
    std::fs::write(&trusted, ours.pem()).unwrap();
    let (good, good_port) = server(&ours, &folder, "good", 2100);
    let (_foreign, foreign_port) = server(&others, &folder, "foreign", 2100);
    let (_expired, expired_port) = server(&ours, &folder, "expired", 2001);
    let ports = [good_port, foreign_port, expired_port, good.port()];
    let output = Command::new(std::env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env(CHILD, ports.map(|port| port.to_string()).join(","))
        .env("SSL_CERT_FILE", &trusted)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{error}");
}

fn talks_to_the_first_and_not_to_the_others(ports: &[u16]) {
    note_panics();
    rustls::crypto::ring::default_provider().install_default().expect("there was none");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for (index, port) in ports.iter().enumerate() {
            let redis = RedisStore::connect(&format!("rediss://127.0.0.1:{port}")).unwrap();
            let limiter = Policy::gcra("tls", "100/s").on(Resilient::new(&redis)).unwrap();
            let connected = redis.connected(Duration::from_secs(if index == 0 { 60 } else { 2 })).await;
            let basis = limiter.check("ada").await.expect("it is decided").decided_by();
            if index == 0 {
                connected.expect("our own authority has signed it");
                assert_eq!(basis, DecidedBy::Store);
            } else {
                let error =
                    connected.expect_err("a foreign authority, an expired certificate, and no TLS at all");
                assert_eq!(
                    (error.kind(), basis),
                    (StoreErrorKind::Unavailable, DecidedBy::Fallback),
                    "case {index}"
                );
            }
        }
    });
    assert_eq!(panics_of(""), Vec::<String>::new());
}
