//! Who the server says it is, which policies it begins with, and what it signs.

use std::path::PathBuf;

use super::{Default, Setting, secret, set, setting};
use crate::settings::value::Kind;

#[rustfmt::skip]
pub(super) static SETTINGS: &[Setting] = &[
    setting(("runtime_id", "runtime-id", "MACP_RUNTIME_ID"), Kind::Text, Default::Is("macp-runtime"),
        "Name of this runtime in its manifest and in receipts; signed receipts need one that is set",
        |draft, value| {
            let text = value.text();
            if text.trim().is_empty() {
                return Err("the name is empty".to_owned());
            }
            draft.server.runtime_id = text.to_owned();
            Ok(())
        }),
    setting(("policies_dir", "policies-dir", "MACP_POLICIES_DIR"), Kind::Text, Default::Unset("none"),
        "Directory of `*.json` policies to register at start, by file name; a change needs a restart",
        set!(|draft, value| draft.policies_dir = Some(PathBuf::from(value.text())))),
    setting(("policies_read_only", "policies-read-only", "MACP_POLICIES_READ_ONLY"), Kind::Switch, Default::Is("false"),
        "Clients cannot register or unregister policies",
        set!(|draft, value| draft.server.policies_read_only = value.is_on())),
    secret(("receipt_signing_key", "MACP_RECEIPT_SIGNING_KEY"), "receipts are not signed",
        "Ed25519 key that signs decision receipts, as PKCS#8 PEM or private JWK",
        set!(|draft, value| draft.receipts.signing_key = Some(value.secret().clone()))),
    setting(("receipt_signing_key_path", "receipt-signing-key-path", "MACP_RECEIPT_SIGNING_KEY_PATH"),
        Kind::Text, Default::Unset("receipts are not signed"),
        "The same as a file; a change needs a restart",
        set!(|draft, value| draft.receipts.signing_key_path = Some(PathBuf::from(value.text())))),
    setting(("receipt_signing_kid", "receipt-signing-kid", "MACP_RECEIPT_SIGNING_KID"),
        Kind::Text, Default::Unset("the JWK's own"),
        "Key id the signing key is published under; a PEM needs one",
        set!(|draft, value| draft.receipts.signing_kid = Some(value.text().to_owned()))),
    setting(("receipt_public_keys_path", "receipt-public-keys-path", "MACP_RECEIPT_PUBLIC_KEYS_PATH"),
        Kind::Text, Default::Unset("none"),
        "JSON Web Key Set file with retired signing keys, public parts only, so that old receipts can be checked",
        set!(|draft, value| draft.receipts.public_keys_path = Some(PathBuf::from(value.text())))),
];
