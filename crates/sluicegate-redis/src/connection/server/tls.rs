//! `rediss://` needs more than the URL: a crypto provider, and possibly a private CA.
//!
//! The crate picks no provider for rustls: the application has one already, and two in one binary
//! fail at run time. So the store checks for a provider when it is made, and its error says what to
//! call.

use redis::cluster::ClusterClientBuilder;
use redis::sentinel::SentinelClientBuilder;
use redis::{Client, ConnectionInfo, RedisError};
use sluicegate_core::ConfigError;
#[cfg(feature = "tls")]
use sluicegate_core::error::ConfigErrorKind;

/// The trusted certificates; the system's if none were given.
#[derive(Clone, Default)]
pub(crate) struct TrustedCa {
    #[cfg(feature = "tls")]
    ca: Option<redis::TlsCertificates>,
}

impl TrustedCa {
    #[cfg(feature = "tls")]
    pub(crate) fn with_ca(pem: &[u8]) -> Self {
        Self { ca: Some(redis::TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) }) }
    }

    /// Checks for a provider before connecting: without one, rustls would panic in the background, and the application would only
    /// see that there is no connection.
    #[cfg(feature = "tls")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |problem: &'static str| ConfigError::new(ConfigErrorKind::Store, problem);
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(wrong(
                "no rustls crypto provider is installed: call rustls::crypto::ring::default_provider().install_default(), or that of another provider, before a store connects by TLS",
            ));
        }
        let Some(ca) = &self.ca else { return Ok(()) };
        match Client::build_with_tls("rediss://localhost", ca.clone()) {
            Ok(_) => Ok(()),
            Err(error) => Err(wrong("the CA is not a certificate in PEM").with_source(error)),
        }
    }

    /// Always succeeds: without the feature, a TLS URL was refused before.
    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        #[cfg(feature = "tls")]
        if let Some(ca) = &self.ca {
            return Client::build_with_tls(info, ca.clone());
        }
        Client::open(info)
    }

    pub(super) fn of_cluster(&self, builder: ClusterClientBuilder) -> ClusterClientBuilder {
        #[cfg(feature = "tls")]
        if let Some(ca) = &self.ca {
            return builder.certs(ca.clone());
        }
        builder
    }

    pub(super) fn of_master(&self, builder: SentinelClientBuilder) -> SentinelClientBuilder {
        #[cfg(feature = "tls")]
        if let Some(ca) = &self.ca {
            return builder.set_client_to_redis_certificates(ca.clone());
        }
        builder
    }
}
