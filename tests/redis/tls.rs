//! `rediss://`, with a CA of our own.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sluicegate_core::Policy;
use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::{Server, free_port};

use crate::support::{connected, patient};

/// A server that also speaks TLS, where, and the CA that vouches for it.
struct Secured {
    _server: Server,
    url: String,
    ca: String,
}

fn ca() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

impl Secured {
    fn start() -> Self {
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (ca, issuer) = ca();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let port = free_port();
        let mut server = Server::reserve(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            "server.pem",
            "--tls-key-file",
            "key.pem",
            "--tls-ca-cert-file",
            "ca.pem",
            "--tls-auth-clients",
            "no",
        ]);
        std::fs::create_dir_all(server.folder()).unwrap();
        let files =
            [("server.pem", certificate.pem()), ("key.pem", key.serialize_pem()), ("ca.pem", ca.clone())];
        for (name, text) in files {
            std::fs::write(server.folder().join(name), text).unwrap();
        }
        server.restart();
        Self { _server: server, url: format!("rediss://127.0.0.1:{port}"), ca }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_ca_is_known_decides() {
    let secured = Secured::start();
    let store = connected(patient("rl").tls_ca(&secured.ca), &secured.url).await;
    let limiter = Policy::gcra("login", "1/day").on(&store).unwrap();
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    assert!(!limiter.check("ada").await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_ca_is_not_known_is_never_used() {
    let secured = Secured::start();
    let strangers = [RedisStore::builder(), RedisStore::builder().tls_ca(ca().0)];
    for builder in strangers {
        let store = builder.connect(&secured.url).unwrap();
        let limiter = Policy::gcra("login", "1/day").on(&store).unwrap();
        let absent = store.connected(Duration::from_millis(500)).await.expect_err("nobody vouches for it");
        assert_eq!(absent.kind(), StoreErrorKind::Unavailable);
        let refused = limiter.charge("ada", 1).await.expect_err("there is no connection");
        assert_eq!(refused.kind(), StoreErrorKind::Unavailable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_is_none_is_a_mistake_in_the_configuration() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pem = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
    let error = RedisStore::builder().tls_ca(pem).connect("rediss://localhost").expect_err("it is none");
    assert_eq!(error.kind(), ConfigErrorKind::Store);
    assert!(error.to_string().contains("not a certificate in PEM"), "{error}");
}
