//! From PEM files to a rustls configuration.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

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

/// What a file was when it was looked at: changed or not? `None`: it could not be looked at. The
/// time of the last change of owner, mode, name or content tells also what a copy with its times
/// kept, or a link that leads elsewhere, would hide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Option<(u64, u64, u64, i64, i64)>);

pub(crate) struct Loaded {
    pub config: Arc<ServerConfig>,
    /// The same, but that no certificate is asked for.
    pub asks_nothing: Arc<ServerConfig>,
    pub expires_at: i64,
    pub stamps: Vec<Stamp>,
}

pub(crate) fn stamps(options: &TlsOptions) -> Vec<Stamp> {
    let files = [
        Some(&options.keystore),
        options.key.as_ref(),
        options.truststore.as_ref(),
    ];
    let stamp = |path: &std::path::PathBuf| {
        let found = fs::metadata(path).ok();
        Stamp(found.map(|m| (m.dev(), m.ino(), m.len(), m.ctime(), m.ctime_nsec())))
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
    let config =
        |client_auth| server_config(options, client_auth, &versions, &chain, (key_file, &key));
    let asking = Arc::new(config(options.client_auth)?);
    Ok(Loaded {
        asks_nothing: match options.client_auth {
            ClientAuth::None => asking.clone(),
            ClientAuth::Requested | ClientAuth::Required => Arc::new(config(ClientAuth::None)?),
        },
        config: asking,
        expires_at,
        stamps,
    })
}

fn server_config(
    options: &TlsOptions,
    client_auth: ClientAuth,
    versions: &[&'static SupportedProtocolVersion],
    chain: &[CertificateDer<'static>],
    (key_file, key): (&Path, &PrivateKeyDer<'static>),
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|e| TlsError::Options(e.to_string()))?;
    let builder = match client_auth {
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
        .with_single_cert(chain.to_vec(), key.clone_key())
        .map_err(|e| TlsError::Bad {
            path: match e {
                rustls::Error::InvalidCertificate(_) => options.keystore.clone(),
                _ => key_file.to_owned(),
            },
            what: match e {
                rustls::Error::InconsistentKeys(_) => format!(
                    "the key is not that of the first certificate in {}",
                    options.keystore.display()
                ),
                rustls::Error::InvalidCertificate(e) => format!(
                    "the first certificate cannot be used: {e:?}; it must be one of X.509 version 3 \
                     (openssl x509 -req makes those with -extfile or -copy_extensions)"
                ),
                other => other.to_string(),
            },
        })?;
    // Resumption would skip the look at a client's certificate.
    if client_auth != ClientAuth::None {
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Read {
        setting,
        path: path.to_owned(),
        source,
    };
    // A pipe would be waited for, and a device has no end.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is no regular file")));
    }
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content))
        .map_err(unreadable)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(TlsError::Bad {
            path: path.to_owned(),
            what: format!(
                "more than {MAX_FILE_BYTES} bytes are no PEM file of keys and certificates"
            ),
        });
    }
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
        [0xCE, 0xCE, 0xCE, 0xCE, ..] => Some("JCEKS"),
        // A DER sequence whose length is in any of the usual forms, then version 3.
        [0x30, 0x80, rest @ ..]
        | [0x30, 0x81, _, rest @ ..]
        | [0x30, 0x82, _, _, rest @ ..]
        | [0x30, 0x83, _, _, _, rest @ ..]
            if rest.starts_with(&[0x02, 0x01, 0x03]) =>
        {
            Some("PKCS12")
        }
        _ => None,
    }
}

fn conversion(kind: &str, setting: &str, path: &Path) -> String {
    let path = path.display();
    let (source, first) = match kind {
        "JKS" | "JCEKS" => (
            "store.p12".to_owned(),
            format!(
                "keytool -importkeystore -srckeystore {path} -srcstoretype {kind} -destkeystore \
                 store.p12 -deststoretype PKCS12 && "
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
    // The parser's own words could show a line of the file, and a key may stand in it.
    let all = all.map_err(|_| TlsError::Bad {
        path: path.to_owned(),
        what: "it is no PEM: each block begins with a line -----BEGIN ...-----, ends with a line \
               -----END ...----- and has base64 in between"
            .to_owned(),
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
        // Also in the older form, as a header within the block.
        Err(_) if contains(pem, b"ENCRYPTED") => Err(TlsError::EncryptedKey {
            path: path.to_owned(),
        }),
        Err(pem::Error::NoItemsFound) => Err(TlsError::Missing {
            path: path.to_owned(),
            what: "private key",
            mend: "add its -----BEGIN PRIVATE KEY----- block, or name its file in \
                   tls.key.location",
        }),
        // The error's text could show what stands in the file.
        Err(_) => Err(TlsError::Bad {
            path: path.to_owned(),
            what: "the private key cannot be read".to_owned(),
        }),
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
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
