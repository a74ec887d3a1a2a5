//! TLS to a store whose certificates an authority of one's own signed.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// TLS that trusts these certificate authorities only.
pub fn tls_config(ca_pem: &[u8]) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        let certificate = certificate.map_err(|error| format!("the CA file is not PEM: {error:?}"))?;
        roots.add(certificate).map_err(|error| format!("the CA file has an unusable certificate: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the CA file has no certificate".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
