//! Certificates: [`Tls`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use crate::builder::{ServeError, ServeErrorKind};

/// The certificate of a server, and the authority of its clients' certificates.
///
/// The program has to install a rustls crypto provider before, for example with
/// `rustls::crypto::ring::default_provider().install_default()`.
#[derive(Clone)]
pub struct Tls(Arc<TlsFiles>);

struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_authority: Option<PathBuf>,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads a certificate chain and its private key from PEM files. With `client_authority`, clients have to show a certificate that one of
    /// the authorities in that file has signed.
    ///
    /// # Errors
    /// When a file cannot be read or parsed, when key and certificate do not belong together, and when no crypto provider is installed.
    pub fn read(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_authority: Option<PathBuf>,
    ) -> Result<Self, ServeError> {
        let (certificate, key) = (certificate.into(), key.into());
        let config = read_config(&certificate, &key, client_authority.as_deref())?;
        let config = ArcSwap::from_pointee(config);
        Ok(Self(Arc::new(TlsFiles { certificate, key, client_authority, config })))
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// As [`read`](Self::read); the former certificates stay in use.
    pub fn reload(&self) -> Result<(), ServeError> {
        let TlsFiles { certificate, key, client_authority, config } = &*self.0;
        config.store(Arc::new(read_config(certificate, key, client_authority.as_deref())?));
        Ok(())
    }

    /// Whether clients have to show a certificate.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.0.client_authority.is_some()
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.config.load_full())
    }
}

fn read_config(
    certificate: &Path,
    key: &Path,
    client_authority: Option<&Path>,
) -> Result<ServerConfig, ServeError> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(wrong(
            "no crypto provider of rustls is installed: call rustls::crypto::ring::default_provider().install_default() first",
        ));
    }
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&pem(key)?)
        .map_err(|error| wrong(format!("{}: it has no private key", key.display())).because(error))?;
    let builder = match client_authority {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| {
                    wrong(format!("{}: a certificate in it is not usable as an authority", path.display()))
                        .because(error)
                })?;
            }
            let verifier = WebPkiClientVerifier::builder(roots.into()).build().map_err(|error| {
                wrong(format!("{}: client certificates cannot be verified with it", path.display()))
                    .because(error)
            })?;
            ServerConfig::builder().with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private).map_err(|error| {
        wrong(format!("{} and {} do not belong together", certificate.display(), key.display()))
            .because(error)
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let pem = pem(path)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(wrong(format!("{}: it has no PEM certificate", path.display()))),
        Err(error) => {
            Err(wrong(format!("{}: its certificates cannot be read", path.display())).because(error))
        }
    }
}

/// The content of a file. A pipe is not opened, because that waits for its writer.
fn pem(path: &Path) -> Result<Vec<u8>, ServeError> {
    let unreadable =
        |error: io::Error| wrong(format!("{}: it cannot be read", path.display())).because(error);
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(wrong(format!("{}: it is not a file", path.display())));
    }
    std::fs::read(path).map_err(unreadable)
}

fn wrong(problem: impl Into<std::borrow::Cow<'static, str>>) -> ServeError {
    ServeError::new(ServeErrorKind::Tls, problem)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("certificate", &self.0.certificate)
            .field("client_authority", &self.0.client_authority)
            .finish_non_exhaustive()
    }
}
