//! Files that are read once, at start: certificates, keys of receipts, policies.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use macp_archive::receipt::{PublicKeys, SigningKey};
use macp_auth::Secret;
use macp_edge::{Receipts, Settings, Tls};

use super::policies;

/// Everything that is read once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(super) tls: TlsFiles,
    pub(super) receipts: ReceiptFiles,
    pub(super) policies_dir: Option<PathBuf>,
}

/// Where the texts for TLS are.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFiles {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) client_authorities: Option<PathBuf>,
}

/// Where the keys of receipts are.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiptFiles {
    pub(super) signing_key: Option<Secret>,
    pub(super) signing_key_path: Option<PathBuf>,
    pub(super) signing_kid: Option<String>,
    pub(super) public_keys_path: Option<PathBuf>,
}

/// What a PEM file is to hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pem {
    Certificates,
    Key,
}

impl Files {
    /// What stands against these settings before any file is read.
    pub(super) fn check(&self, names_runtime: bool) -> Vec<&'static str> {
        let TlsFiles { certificate, key, client_authorities } = &self.tls;
        let mut problems = match (certificate, key) {
            (Some(_), None) => vec!["tls_cert_path is given without tls_key_path (MACP_TLS_KEY_PATH); TLS needs both"],
            (None, Some(_)) => vec!["tls_key_path is given without tls_cert_path (MACP_TLS_CERT_PATH); TLS needs both"],
            (None, None) if client_authorities.is_some() => vec![
                "tls_client_ca_path is given without TLS, so no certificate of a client would be checked; add \
                 tls_cert_path and tls_key_path (MACP_TLS_CERT_PATH, MACP_TLS_KEY_PATH)",
            ],
            _ => Vec::new(),
        };
        let receipts = &self.receipts;
        match (&receipts.signing_key, &receipts.signing_key_path) {
            (Some(_), Some(_)) => {
                problems.push("receipt_signing_key and receipt_signing_key_path are both given; keep one of them");
            }
            (None, None) if receipts.signing_kid.is_some() => problems.push(
                "receipt_signing_kid is given without a key; add receipt_signing_key_path \
                 (MACP_RECEIPT_SIGNING_KEY_PATH), or remove it",
            ),
            (None, None) => {}
            _ if !names_runtime => problems.push(
                "signed receipts name the runtime that issued them; set runtime_id (--runtime-id, MACP_RUNTIME_ID) to \
                 a name that no other deployment has",
            ),
            _ => {}
        }
        problems
    }

    /// What the transport is secured with, in a word or two.
    pub(super) fn tls(&self) -> &'static str {
        match (&self.tls.certificate, &self.tls.client_authorities) {
            (None, _) => "off",
            (Some(_), None) => "on",
            (Some(_), Some(_)) => "on, with certificates of clients",
        }
    }

    /// Reads everything into the settings of a server.
    pub(super) fn load(&self, settings: &mut Settings) -> anyhow::Result<()> {
        settings.tls = self.tls.load()?;
        settings.receipts = self.receipts.load()?;
        if let Some(directory) = &self.policies_dir {
            settings.policies = policies::read(directory)?;
        }
        Ok(())
    }
}

impl TlsFiles {
    fn load(&self) -> anyhow::Result<Option<Tls>> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(None);
        };
        Ok(Some(Tls {
            certificate: read_pem(certificate, Pem::Certificates).context("cannot use the TLS certificate")?,
            key: read_pem(key, Pem::Key).context("cannot use the TLS key")?,
            client_authorities: self
                .client_authorities
                .as_deref()
                .map(|path| read_pem(path, Pem::Certificates).context("cannot use the authorities of clients"))
                .transpose()?,
        }))
    }
}

impl ReceiptFiles {
    fn load(&self) -> anyhow::Result<Receipts> {
        let kid = self.signing_kid.as_deref();
        let signing_key = match (&self.signing_key, &self.signing_key_path) {
            (Some(text), _) => Some(SigningKey::parse(text.expose(), kid)?),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the receipt signing key {}", path.display()))?;
                // Not shown by anything from here on.
                let text = Secret::from(text);
                Some(SigningKey::parse(text.expose(), kid).with_context(|| path.display().to_string())?)
            }
            (None, None) => None,
        };
        let retired = match &self.public_keys_path {
            Some(path) => PublicKeys::read(path).with_context(|| path.display().to_string())?,
            None => PublicKeys::none(),
        };
        let public_keys = match &signing_key {
            Some(key) => retired.with_active(key)?,
            None => retired,
        };
        Ok(Receipts { signing_key, public_keys })
    }
}

/// Reads a PEM file. The libraries below tell no file name, nor that two files were mixed up.
pub(super) fn read_pem(path: &Path, expected: Pem) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let begins = |kind: &str| text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(kind));
    let shown = path.display();
    match expected {
        Pem::Certificates if begins("CERTIFICATE-----") => {}
        Pem::Certificates => bail!("{shown} holds no PEM block `BEGIN CERTIFICATE`"),
        Pem::Key if begins("ENCRYPTED PRIVATE KEY-----") => bail!("{shown} is encrypted; hand the key over decrypted"),
        Pem::Key if begins("PRIVATE KEY-----") => {}
        Pem::Key => bail!("{shown} holds no PEM block `BEGIN PRIVATE KEY`"),
    }
    Ok(bytes)
}
