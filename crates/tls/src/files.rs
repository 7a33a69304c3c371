//! From PEM files to a rustls configuration.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::TlsError;
use crate::{ClientAuth, TlsOptions};

/// More than any chain with its key: what is larger is something else.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What a file was when it was looked at: changed or not?
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: Option<u64>,
}

pub(crate) struct Loaded {
    pub config: Arc<ServerConfig>,
    pub expires_at: i64,
    pub stamps: Vec<Stamp>,
}

impl Loaded {
    pub fn with_stamps(&self, stamps: Vec<Stamp>) -> Loaded {
        Loaded {
            config: self.config.clone(),
            expires_at: self.expires_at,
            stamps,
        }
    }
}

pub(crate) fn stamps(options: &TlsOptions) -> Vec<Stamp> {
    let files = [
        Some(&options.keystore),
        options.key.as_ref(),
        options.truststore.as_ref(),
    ];
    let stamp = |path: &std::path::PathBuf| {
        let found = fs::metadata(path).ok();
        Stamp {
            modified: found.as_ref().and_then(|m| m.modified().ok()),
            bytes: found.map(|m| m.len()),
        }
    };
    files.into_iter().flatten().map(stamp).collect()
}

pub(crate) fn load(options: &TlsOptions) -> Result<Loaded, TlsError> {
    // Before the reading: a change in between is seen at the next look.
    let stamps = stamps(options);
    let keystore = read("ssl.keystore.location", &options.keystore)?;
    let chain = certificates(&options.keystore, &keystore)?;
    let (key_file, key) = match &options.key {
        Some(path) => (path, read("tls.key.location", path)?),
        None => (&options.keystore, keystore),
    };
    let key = private_key(key_file, &key)?;
    let mut expires_at = i64::MAX;
    for certificate in &chain {
        expires_at = expires_at.min(end_of(&options.keystore, certificate)?);
    }

    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    if options.tls_1_2 {
        versions.push(&version::TLS12);
    }
    if options.tls_1_3 {
        versions.push(&version::TLS13);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|e| TlsError::Options(e.to_string()))?;
    let builder = match options.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        asked => {
            let path = options.truststore.as_deref().ok_or_else(|| {
                TlsError::Options(
                    "ssl.client.auth asks for certificates, and ssl.truststore.location does not \
                     say which CAs sign them"
                        .to_owned(),
                )
            })?;
            let roots = authorities(path)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match asked {
                ClientAuth::Requested => verifier.allow_unauthenticated(),
                ClientAuth::None | ClientAuth::Required => verifier,
            };
            let verifier = verifier.build().map_err(|e| TlsError::Bad {
                path: path.to_owned(),
                what: e.to_string(),
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| TlsError::Bad {
            path: key_file.clone(),
            what: match e {
                rustls::Error::InconsistentKeys(_) => format!(
                    "the key is not that of the first certificate in {}",
                    options.keystore.display()
                ),
                other => other.to_string(),
            },
        })?;
    // Resumption would skip the look at a client's certificate.
    if options.client_auth != ClientAuth::None {
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Loaded {
        config: Arc::new(config),
        expires_at,
        stamps,
    })
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Read {
        setting,
        path: path.to_owned(),
        source,
    };
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(TlsError::Bad {
            path: path.to_owned(),
            what: format!("{bytes} bytes are no PEM file of keys and certificates"),
        });
    }
    let content = fs::read(path).map_err(unreadable)?;
    if let Some(kind) = store_kind(&content) {
        return Err(TlsError::NotPem {
            path: path.to_owned(),
            kind,
            convert: conversion(kind, setting, path),
        });
    }
    Ok(content)
}

/// The stores that Java writes, by their first bytes.
fn store_kind(content: &[u8]) -> Option<&'static str> {
    match content {
        [0xFE, 0xED, 0xFE, 0xED, ..] => Some("JKS"),
        // A DER sequence with a long length, then version 3: PKCS12.
        [0x30, 0x82, _, _, 0x02, 0x01, 0x03, ..] => Some("PKCS12"),
        _ => None,
    }
}

fn conversion(kind: &str, setting: &str, path: &Path) -> String {
    let path = path.display();
    let (source, first) = match kind {
        "JKS" => (
            "store.p12".to_owned(),
            format!(
                "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 \
                 -deststoretype PKCS12 && "
            ),
        ),
        _ => (path.to_string(), String::new()),
    };
    let what = match setting {
        "ssl.truststore.location" => "-nokeys",
        _ => "-nodes",
    };
    format!("{first}openssl pkcs12 -in {source} {what} -out store.pem")
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| TlsError::Bad {
        path: path.to_owned(),
        what: format!("a certificate cannot be read: {e}"),
    })?;
    if all.is_empty() {
        return Err(TlsError::Missing {
            path: path.to_owned(),
            what: "certificate",
            mend: "it must hold -----BEGIN CERTIFICATE----- blocks, the broker's own first",
        });
    }
    Ok(all)
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let encrypted = pem
                .windows(b"ENCRYPTED".len())
                .any(|part| part == b"ENCRYPTED");
            Err(match encrypted {
                true => TlsError::EncryptedKey {
                    path: path.to_owned(),
                },
                false => TlsError::Missing {
                    path: path.to_owned(),
                    what: "private key",
                    mend: "add its -----BEGIN PRIVATE KEY----- block, or name its file in \
                           tls.key.location",
                },
            })
        }
        // The error's text could show what stands in the file.
        Err(_) => Err(TlsError::Bad {
            path: path.to_owned(),
            what: "the private key cannot be read".to_owned(),
        }),
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let pem = read("ssl.truststore.location", path)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, &pem)? {
        roots.add(certificate).map_err(|e| TlsError::Bad {
            path: path.to_owned(),
            what: format!("a CA's certificate cannot be used: {e}"),
        })?;
    }
    Ok(roots)
}

fn end_of(path: &Path, certificate: &CertificateDer<'_>) -> Result<i64, TlsError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| TlsError::Bad {
        path: path.to_owned(),
        what: format!("a certificate cannot be read: {e}"),
    })?;
    Ok(parsed.validity().not_after.timestamp())
}
