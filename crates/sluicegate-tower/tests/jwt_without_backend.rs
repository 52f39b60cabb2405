//! What happens where `jsonwebtoken` has no crypto backend. A binary of its own, for a backend is chosen once per process.
#![cfg(feature = "jwt")]

use jsonwebtoken::crypto::{CryptoProvider, KeyUtils};
use sluicegate_tower::key::BearerJwt;

/// As the one that the library falls back on when it cannot choose: it panics when a token comes.
static NONE: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| panic!("no process-level CryptoProvider"),
    verifier_factory: |_, _| panic!("no process-level CryptoProvider"),
    key_utils: KeyUtils::new_unimplemented(),
};

#[test]
fn a_missing_crypto_backend_is_an_error_where_the_extractor_is_made() {
    NONE.install_default().unwrap();
    let message = BearerJwt::hs256(&[7; 32]).unwrap_err().to_string();
    for part in ["no crypto backend", "\"rust_crypto\"", "\"aws_lc_rs\"", "CryptoProvider"] {
        assert!(message.contains(part), "{message}");
    }
}
