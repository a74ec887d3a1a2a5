//! A certificate authority for one test, and a server certificate of it.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// The files, in PEM.
pub struct TlsFiles {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Writes the three files. The server is `localhost` and 127.0.0.1: cluster nodes announce addresses, not names.
pub fn write(dir: &Path) -> TlsFiles {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "Headcount test authority");
    let ca_key = KeyPair::generate().expect("a key");
    let ca_cert = ca.self_signed(&ca_key).expect("a certificate");
    let issuer = Issuer::new(ca, ca_key);

    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let server = CertificateParams::new(names).expect("names");
    let server_key = KeyPair::generate().expect("a key");
    let server_cert = server.signed_by(&server_key, &issuer).expect("a certificate");

    let write = |name: &str, pem: String| {
        let path = dir.join(name);
        std::fs::write(&path, pem).expect("a PEM file");
        path
    };
    TlsFiles {
        ca: write("ca.pem", ca_cert.pem()),
        cert: write("server.pem", server_cert.pem()),
        key: write("server.key", server_key.serialize_pem()),
    }
}
