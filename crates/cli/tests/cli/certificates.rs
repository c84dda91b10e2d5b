//! Certificates made for the purpose, as files.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

/// An authority with a server's certificate and a client's, in one directory.
pub(crate) struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
        for (name, purpose) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            params.extended_key_usages = vec![purpose];
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(directory.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(directory.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Certificates { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path as a flag takes it.
    pub(crate) fn file(&self, name: &str) -> String {
        text(&self.path(name))
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("paths of tests are text").to_owned()
}
