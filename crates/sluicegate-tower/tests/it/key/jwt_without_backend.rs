//! A token where `jsonwebtoken` has no crypto backend, which is chosen once per process: the test has one of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use jsonwebtoken::crypto::{CryptoProvider, KeyUtils};
use sluicegate_tests::process::alone;
use sluicegate_tower::key::BearerJwt;

/// As the one that the library falls back on when it cannot choose: it panics when a token comes.
static NONE: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| panic!("no process-level CryptoProvider"),
    verifier_factory: |_, _| panic!("no process-level CryptoProvider"),
    key_utils: KeyUtils::new_unimplemented(),
};

#[test]
fn a_missing_crypto_backend_is_an_error_where_the_extractor_is_made() {
    alone(|| {
        static PRINTED: AtomicUsize = AtomicUsize::new(0);
        std::panic::set_hook(Box::new(|_| _ = PRINTED.fetch_add(1, Ordering::Relaxed)));
        NONE.install_default().unwrap();
        let message = BearerJwt::hs256(&[7; 32]).unwrap_err().to_string();
        assert_eq!(PRINTED.load(Ordering::Relaxed), 0, "no panic is printed before the error");
        _ = std::panic::catch_unwind(|| panic!("the hook is the one from before"));
        assert_eq!(PRINTED.load(Ordering::Relaxed), 1);
        _ = std::panic::take_hook();
        for part in ["no crypto backend", "\"rust_crypto\"", "\"aws_lc_rs\"", "CryptoProvider"] {
            assert!(message.contains(part), "{message}");
        }
    });
}
