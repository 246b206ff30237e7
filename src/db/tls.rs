//! TLS between us and a server, with the meaning that libpq gives its parameters.
//!
//! It lies below everything else: the handshake is made on the socket, and what is handed on is a stream like any other,
//! so that sessions observe plain bytes. Files are read for each connection: a renewed certificate needs no restart.

use std::fmt;
use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

/// The first message of a client that wants TLS (PostgreSQL manual, "SSLRequest").
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// The value of `sslrootcert` that means the system's own.
const SYSTEM: &str = "system";

/// How much of it is demanded: `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// None.
    Disable,
    /// If the server has it; without a look at its certificate.
    Prefer,
    /// Always; without a look at the certificate, unless authorities are given.
    Require,
    /// And the certificate is signed by an authority that is given.
    VerifyCa,
    /// And it names the host.
    VerifyFull,
}

/// What a connection string says of TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// How much is demanded.
    pub mode: Mode,
    /// The authorities: a file, or `system`.
    root: Option<PathBuf>,
    /// The client's certificate, with those that lead to its authority.
    cert: Option<PathBuf>,
    /// Its key.
    key: Option<PathBuf>,
}

impl Tls {
    /// No TLS.
    pub const NONE: Tls = Tls { mode: Mode::Disable, root: None, cert: None, key: None };

    /// Reads the parameters of a connection string; what it does not say is taken from libpq's variables.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn read(parameters: &[(String, String)]) -> Result<Tls, String> {
        let get = |key: &str| {
            let given = parameters.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone());
            let variable = format!("PG{}", key.to_ascii_uppercase());
            given.or_else(|| std::env::var(variable).ok()).filter(|value| !value.is_empty())
        };
        let file = |key| get(key).map(PathBuf::from);
        let mut tls =
            Tls { mode: Mode::Prefer, root: file("sslrootcert"), cert: file("sslcert"), key: file("sslkey") };
        tls.mode = match get("sslmode").as_deref() {
            None | Some("prefer") => Mode::Prefer,
            Some("disable") => Mode::Disable,
            // With authorities at hand libpq checks the certificate, too.
            Some("require") if tls.root.is_some() => Mode::VerifyCa,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(_) => {
                return Err("sslmode must be disable, prefer, require, verify-ca or verify-full".to_owned());
            }
        };
        if tls.mode >= Mode::VerifyCa && tls.root.is_none() {
            return Err(
                "verify-ca and verify-full need sslrootcert: a file of authorities, or \"system\" for the system's own"
                    .to_owned(),
            );
        }
        if tls.root.as_deref() == Some(Path::new(SYSTEM)) && tls.mode == Mode::VerifyCa {
            return Err(
                "sslrootcert=system needs sslmode=verify-full: anybody can have a certificate of some name"
                    .to_owned(),
            );
        }
        if tls.cert.is_some() != tls.key.is_some() {
            return Err("sslcert and sslkey go together".to_owned());
        }
        Ok(tls)
    }

    /// Asks the server for TLS and shakes hands. `None`: it has none, and that is fine.
    ///
    /// # Errors
    /// When it has none but should, or its certificate does not do; when a file cannot be used.
    pub async fn secure(&self, mut socket: TcpStream, host: &str) -> io::Result<Secured> {
        socket.write_all(&SSL_REQUEST).await?;
        match socket.read_u8().await? {
            b'S' => {}
            b'N' if self.mode <= Mode::Prefer => return Ok(Secured::Plain(socket)),
            b'N' => return Err(Error::other("the server does not speak TLS, which sslmode demands")),
            _ => {
                return Err(Error::other(
                    "the answer to a request for TLS is not one of a PostgreSQL server",
                ));
            }
        }
        let name = match ServerName::try_from(host.to_owned()) {
            Ok(name) => name,
            Err(e) if self.mode == Mode::VerifyFull => return Err(Error::other(e)),
            Err(_) => ServerName::IpAddress(socket.peer_addr()?.ip().into()),
        };
        let stream = TlsConnector::from(Arc::new(self.config()?)).connect(name, socket).await;
        stream
            .map(|stream| Secured::Tls(Box::new(stream)))
            .map_err(|e| Error::new(e.kind(), format!("TLS: {e}")))
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let roots = match &self.root {
            Some(path) if self.mode >= Mode::VerifyCa => Some(Roots::read(path)?),
            Some(_) | None => None,
        };
        let checks = Checks { roots, name: self.mode == Mode::VerifyFull, provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(checks));
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(config.with_no_client_auth());
        };
        let key = read_key(key)?;
        config.with_client_auth_cert(certificates(cert)?, key).map_err(Error::other)
    }
}

/// A socket after the request.
#[derive(Debug)]
pub enum Secured {
    /// The server has no TLS.
    Plain(TcpStream),
    /// It has.
    Tls(Box<TlsStream<TcpStream>>),
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let bad = |e: &dyn fmt::Display| Error::new(ErrorKind::InvalidInput, format!("{}: {e}", path.display()));
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| bad(&e))?.collect();
    let all = all.map_err(|e| bad(&e))?;
    if all.is_empty() { Err(bad(&"it holds no certificate")) } else { Ok(all) }
}

fn read_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    use std::os::unix::fs::PermissionsExt as _;
    let bad = |e: &dyn fmt::Display| Error::new(ErrorKind::InvalidInput, format!("{}: {e}", path.display()));
    let mode = std::fs::metadata(path).map_err(|e| bad(&e))?.permissions().mode();
    // libpq's rule, without that for files of root: a group may read those.
    if mode & 0o037 != 0 {
        return Err(bad(&"the key can be read by others: chmod 0600 it"));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|e| bad(&e))
}

/// Authorities.
#[derive(Debug)]
struct Roots {
    store: RootCertStore,
    /// A server's own certificate may stand in the file, too; then it needs no authority.
    own: Vec<CertificateDer<'static>>,
}

impl Roots {
    fn read(path: &Path) -> io::Result<Roots> {
        let mut store = RootCertStore::empty();
        if path == Path::new(SYSTEM) {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = store.add_parsable_certificates(found.certs);
            return if added == 0 {
                Err(Error::new(ErrorKind::NotFound, "the system has no authorities: install ca-certificates"))
            } else {
                Ok(Roots { store, own: Vec::new() })
            };
        }
        let own = certificates(path)?;
        store.add_parsable_certificates(own.iter().cloned());
        Ok(Roots { store, own })
    }
}

/// Looks at the server's certificate as far as `sslmode` demands.
#[derive(Debug)]
struct Checks {
    roots: Option<Roots>,
    name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Checks {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(roots) = &self.roots {
            let cert = ParsedCertificate::try_from(end_entity)?;
            if !roots.own.iter().any(|own| own == end_entity) {
                let known = self.provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&cert, &roots.store, intermediates, now, known)?;
            }
            if self.name {
                verify_server_name(&cert, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, Tls};

    #[test]
    fn modes_mean_what_they_mean_to_libpq() {
        let read = |text: &str| Tls::read(&crate::db::parameters::split(text).1);
        let mode = |text: &str| read(text).unwrap().mode;
        assert_eq!(mode("host=h"), Mode::Prefer);
        assert_eq!(mode("host=h sslmode=require"), Mode::Require);
        assert_eq!(mode("host=h sslmode=require sslrootcert=/x"), Mode::VerifyCa);
        assert_eq!(mode("host=h sslmode=verify-full sslrootcert=system"), Mode::VerifyFull);
        for (text, why) in [
            ("sslmode=allow", "must be"),
            ("sslmode=verify-full", "need sslrootcert"),
            ("sslmode=verify-ca sslrootcert=system", "verify-full"),
            ("sslcert=/x", "go together"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
