//! TLS for the broker's listeners, on rustls.
//!
//! Key, certificates and CAs come from PEM files. They can change while the broker runs:
//! [`Tls::reload`] reads them again, and new connections use them; files that cannot be used change
//! nothing and are told. A client that shows a certificate is the principal that the certificate
//! names ([`principal`]).
//!
//! TLS 1.2 and 1.3 with rustls's cipher suites, nothing older. JKS and PKCS12 stores are refused with
//! the command that converts them.

mod error;
mod files;
mod principal;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use error::TlsError;
use files::{Loaded, Stamp};
pub use principal::{ANONYMOUS, PrincipalRules, RuleError};

/// Whether clients show a certificate (`ssl.client.auth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    None,
    /// A client may; one that does must show a good one.
    Requested,
    Required,
}

/// Where everything is, and what is asked of clients.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// PEM with the certificate chain, the broker's own first, and, unless `key` is given, its key.
    pub keystore: PathBuf,
    /// PEM with the private key alone.
    pub key: Option<PathBuf>,
    /// PEM with the CAs that sign clients' certificates.
    pub truststore: Option<PathBuf>,
    pub client_auth: ClientAuth,
    pub tls_1_2: bool,
    pub tls_1_3: bool,
    pub rules: PrincipalRules,
}

/// What all TLS listeners share.
pub struct Tls {
    options: TlsOptions,
    loaded: RwLock<Arc<Loaded>>,
    failed: Mutex<Option<Failed>>,
}

/// The last look at the files found them of no use.
#[derive(PartialEq)]
struct Failed {
    stamps: Vec<Stamp>,
    why: String,
}

/// A connection whose handshake is done.
pub struct Secured<S> {
    pub stream: TlsStream<S>,
    /// `User:` and the name that the client's certificate gives it, or [`ANONYMOUS`].
    pub principal: Arc<str>,
    /// The DNS name that the client said it connects to (SNI), in lower case.
    pub server_name: Option<String>,
}

impl Tls {
    /// Reads the files and checks that they fit together. Blocks.
    pub fn load(options: TlsOptions) -> Result<Tls, TlsError> {
        let loaded = files::load(&options)?;
        Ok(Tls {
            options,
            loaded: RwLock::new(Arc::new(loaded)),
            failed: Mutex::new(None),
        })
    }

    /// Reads the files again. New connections use what they hold now; on an error they go on using
    /// what was read before. Blocks.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = files::load(&self.options)?;
        *self.loaded.write() = Arc::new(loaded);
        *self.failed.lock() = None;
        Ok(())
    }

    /// Reloads if a file is not what it was when it was read last. True if it did. Files that could
    /// not be used are tried again at every look, as what was in the way (rights, open files) need
    /// not show in the files; the error comes again only when they or it have changed. Blocks.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let stamps = files::stamps(&self.options);
        if self.loaded.read().stamps == stamps {
            return Ok(false);
        }
        match self.reload() {
            Ok(()) => Ok(true),
            Err(e) => {
                let now = Failed {
                    stamps,
                    why: e.to_string(),
                };
                let mut failed = self.failed.lock();
                let told = failed.as_ref() == Some(&now);
                *failed = Some(now);
                if told { Ok(false) } else { Err(e) }
            }
        }
    }

    /// When the first certificate of the chain to end ends, in seconds since 1970.
    pub fn expires_at(&self) -> i64 {
        self.loaded.read().expires_at
    }

    /// Whole days until [`Tls::expires_at`]; negative when it is past.
    pub fn days_left(&self, now: SystemTime) -> i64 {
        let now = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
        self.expires_at().saturating_sub(now).div_euclid(86_400)
    }

    /// As [`Tls::accept`], but that the client is not asked for a certificate: it says in another way
    /// who it is.
    pub async fn accept_without_certificate<S>(&self, stream: S) -> io::Result<Secured<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.loaded.read().asks_nothing.clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let server_name = stream.get_ref().1.server_name().and_then(host_name);
        Ok(Secured {
            stream,
            principal: Arc::from(ANONYMOUS),
            server_name,
        })
    }

    /// The server's part of the handshake. Takes as long as the client does: the caller bounds it.
    pub async fn accept<S>(&self, stream: S) -> io::Result<Secured<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config: Arc<ServerConfig> = self.loaded.read().config.clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let session = stream.get_ref().1;
        let server_name = session.server_name().and_then(host_name);
        let shown = session.peer_certificates().and_then(<[_]>::first);
        let principal = match shown {
            None => Arc::from(ANONYMOUS),
            Some(certificate) => {
                let name = self.options.rules.name_of(certificate);
                let name = name.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                Arc::from(format!("User:{name}"))
            }
        };
        Ok(Secured {
            stream,
            principal,
            server_name,
        })
    }
}

/// A client's word for where it is: only what may be a host's name, as it is told to the client
/// again. rustls has checked the form; an address is no name.
fn host_name(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let fits = |label: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        (1..=63).contains(&label.len()) && label.chars().all(legal)
    };
    let is_name = name.len() <= 253
        && name.split('.').all(fits)
        && name.chars().any(|c| c.is_ascii_alphabetic());
    is_name.then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::host_name;

    #[test]
    fn a_name_is_told_again_only_if_it_can_be_a_hosts() {
        for (name, told) in [
            ("Kafka.Example.com", Some("kafka.example.com")),
            ("kafka.example.com.", Some("kafka.example.com")),
            ("localhost", Some("localhost")),
            ("a_b-1.x", Some("a_b-1.x")),
            ("127.0.0.1", None),
            ("::1", None),
            ("", None),
            (".", None),
            ("a..b", None),
            ("a b", None),
            ("a/b", None),
            ("a\nb", None),
            ("b\u{fc}cher", None),
        ] {
            assert_eq!(host_name(name).as_deref(), told, "{name:?}");
        }
        assert_eq!(host_name(&"a".repeat(64)), None);
        assert_eq!(host_name(&["a"; 128].join(".")), None);
        assert_eq!(
            host_name(&["a"; 127].join(".")).map(|name| name.len()),
            Some(253)
        );
    }
}
