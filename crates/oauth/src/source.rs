//! Where the keys come from: a file, or an https URL. Both are named in the broker's own settings; nothing
//! that a token says is ever fetched.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::keys::{KeySet, KeysError, MAX_BYTES};

const URL: &str = "sasl.oauthbearer.jwks.endpoint.url";
const TRUSTSTORE: &str = "oauth.jwks.truststore.location";

/// `sasl.oauthbearer.jwks.endpoint.url`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    File(PathBuf),
    /// The URL as it was written.
    Https(String),
}

impl Location {
    /// The error is what is wrong with it.
    pub fn parse(url: &str) -> Result<Location, String> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        if scheme.eq_ignore_ascii_case("file") {
            return file_of(&url[5..]);
        }
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(
                "it begins neither with https:// nor with file:///, and over anything else whoever is \
                 in between could put keys of their own"
                    .to_owned(),
            );
        }
        if !url[scheme.len()..].starts_with("://") {
            return Err("it has no // before its host".to_owned());
        }
        let uri: Uri = url.parse().map_err(|e| format!("it is no URL: {e}"))?;
        match uri.authority() {
            Some(it) if it.as_str().contains('@') => Err("it has a user in it".to_owned()),
            Some(it) if !it.host().is_empty() => Ok(Location::Https(url.to_owned())),
            _ => Err("it names no host".to_owned()),
        }
    }
}

fn file_of(rest: &str) -> Result<Location, String> {
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err("the path of a file begins with /: file:///etc/tidemark/jwks.json".to_owned());
    }
    if path.contains(['%', '?', '#']) {
        return Err("the path of a file may have no %, ? or # in it".to_owned());
    }
    Ok(Location::File(PathBuf::from(path)))
}

#[derive(Clone, Debug)]
pub struct JwksOptions {
    pub location: Location,
    /// A PEM file with the CAs that sign the certificate of an https URL's host. Without it those that the
    /// machine trusts.
    pub truststore: Option<PathBuf>,
    /// For a connection to an https URL, its TLS handshake included.
    pub connect_timeout: Duration,
    /// For all of it.
    pub timeout: Duration,
}

/// Why the keys could not be read: what, where, how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    #[error("sasl.oauthbearer.jwks.endpoint.url cannot be used: {0}")]
    Location(String),
    #[error("{setting} names {}, which cannot be read: {source}", path.display())]
    Read {
        setting: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is no JWKS: {source}", path.display())]
    BadFile { path: PathBuf, source: KeysError },
    #[error("{url} did not answer with a JWKS: {what}")]
    BadAnswer { url: String, what: String },
    #[error("oauth.jwks.truststore.location names {}: {what}", path.display())]
    Truststore { path: PathBuf, what: String },
    #[error(
        "no CAs are known that could vouch for {url}: this machine has none ({why}); install its CA \
         certificates, or name a PEM file in oauth.jwks.truststore.location"
    )]
    NoRoots { url: String, why: String },
}

/// The keys in use, and how to read them again.
pub struct Jwks {
    options: JwksOptions,
    agent: Option<Agent>,
    keys: RwLock<Arc<KeySet>>,
    seen: Mutex<Seen>,
}

/// What the file was when it was read last, and what was wrong with it.
#[derive(Default, PartialEq)]
struct Seen {
    stamp: Option<Stamp>,
    failure: Option<String>,
}

/// What tells that a file changed, also where a copy keeps its times or a link leads elsewhere.
type Stamp = (u64, u64, u64, i64, i64);

impl Jwks {
    /// A file is read, and must be good. A URL is not asked yet: [`Jwks::refresh`] does, and until it was
    /// answered there are no keys and every token is refused. Blocks.
    pub fn open(options: JwksOptions) -> Result<Jwks, JwksError> {
        let agent = match &options.location {
            Location::File(_) => None,
            Location::Https(url) => Some(agent(url, &options)?),
        };
        let jwks = Jwks {
            options,
            agent,
            keys: RwLock::new(Arc::new(KeySet::default())),
            seen: Mutex::new(Seen::default()),
        };
        if jwks.agent.is_none() {
            jwks.refresh()?;
        }
        Ok(jwks)
    }

    pub fn location(&self) -> &Location {
        &self.options.location
    }

    /// The keys that were read last and could be used.
    pub fn keys(&self) -> Arc<KeySet> {
        self.keys.read().clone()
    }

    /// Reads the keys again. True if a file was read or a URL answered, false if a file is as it was. On an
    /// error those that were read before stay; the error of a file comes only once for one state of it.
    /// Blocks.
    pub fn refresh(&self) -> Result<bool, JwksError> {
        match (&self.options.location, &self.agent) {
            (Location::Https(url), Some(agent)) => {
                let answer = ask(agent, url).and_then(|text| {
                    KeySet::parse(&text).map_err(|why| format!("the answer is none: {why}"))
                });
                let keys = answer.map_err(|what| JwksError::BadAnswer {
                    url: without_query(url),
                    what,
                })?;
                *self.keys.write() = Arc::new(keys);
                Ok(true)
            }
            (Location::File(path), _) => self.refresh_file(path),
            (Location::Https(_), None) => Ok(false),
        }
    }

    fn refresh_file(&self, path: &Path) -> Result<bool, JwksError> {
        // Before the reading: a change in between is seen at the next look.
        let stamp = fs::metadata(path)
            .ok()
            .map(|m| (m.dev(), m.ino(), m.len(), m.ctime(), m.ctime_nsec()));
        let mut seen = self.seen.lock();
        if stamp.is_some() && seen.stamp == stamp && seen.failure.is_none() {
            return Ok(false);
        }
        let keys = read_bounded(path)
            .map_err(|source| JwksError::Read {
                setting: URL,
                path: path.to_owned(),
                source,
            })
            .and_then(|text| {
                KeySet::parse(&text).map_err(|source| JwksError::BadFile {
                    path: path.to_owned(),
                    source,
                })
            });
        match keys {
            Ok(keys) => {
                *seen = Seen {
                    stamp,
                    failure: None,
                };
                *self.keys.write() = Arc::new(keys);
                Ok(true)
            }
            Err(e) => {
                let now = Seen {
                    stamp,
                    failure: Some(e.to_string()),
                };
                let told = *seen == now;
                *seen = now;
                if told { Ok(false) } else { Err(e) }
            }
        }
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe would be waited for, and a device has no end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    // One more than is taken, so that what is longer shows.
    File::open(path)?
        .take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// One GET: no redirects, which could lead anywhere, no proxy of the environment, nothing but https.
fn agent(url: &str, options: &JwksOptions) -> Result<Agent, JwksError> {
    let roots = match &options.truststore {
        Some(path) => roots_of(path)?,
        None => roots_of_the_machine(url)?,
    };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build();
    let config = Agent::config_builder()
        .https_only(true)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .timeout_connect(Some(options.connect_timeout))
        .timeout_global(Some(options.timeout))
        .max_response_header_size(64 << 10)
        // Each reading makes its own connection: an hour is between two.
        .max_idle_connections(0)
        .user_agent("tidemark")
        .accept("application/json, application/jwk-set+json")
        .tls_config(tls)
        .build();
    Ok(Agent::new_with_config(config))
}

fn ask(agent: &Agent, url: &str) -> Result<Vec<u8>, String> {
    let mut answer = agent.get(url).call().map_err(|e| e.to_string())?;
    if answer.status() != StatusCode::OK {
        let status = answer.status();
        return Err(match status.is_redirection() {
            true => {
                format!("it answered {status}, and redirects are not followed: name the last URL")
            }
            false => format!("it answered {status}"),
        });
    }
    let body = answer.body_mut().with_config().limit(MAX_BYTES as u64);
    body.read_to_vec().map_err(|e| match e {
        ureq::Error::BodyExceedsLimit(_) => KeysError::TooLarge.to_string(),
        other => other.to_string(),
    })
}

/// What may be told of a URL: a query can be a secret.
fn without_query(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

fn roots_of(path: &Path) -> Result<Vec<Certificate<'static>>, JwksError> {
    let wrong = |what: String| JwksError::Truststore {
        path: path.to_owned(),
        what,
    };
    let pem = read_bounded(path).map_err(|source| JwksError::Read {
        setting: TRUSTSTORE,
        path: path.to_owned(),
        source,
    })?;
    let all: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|_| wrong("it is no PEM file of CA certificates".to_owned()))?;
    if all.is_empty() {
        return Err(wrong(
            "it has no certificate: it must hold the CAs' -----BEGIN CERTIFICATE----- blocks"
                .to_owned(),
        ));
    }
    let mut store = RootCertStore::empty();
    for certificate in &all {
        store
            .add(certificate.clone())
            .map_err(|e| wrong(format!("a CA's certificate cannot be used: {e}")))?;
    }
    Ok(owned(&all))
}

fn roots_of_the_machine(url: &str) -> Result<Vec<Certificate<'static>>, JwksError> {
    let found = rustls_native_certs::load_native_certs();
    match found.certs.is_empty() {
        true => Err(JwksError::NoRoots {
            url: without_query(url),
            why: match found.errors.first() {
                Some(e) => e.to_string(),
                None => "nothing where they are looked for".to_owned(),
            },
        }),
        false => Ok(owned(&found.certs)),
    }
}

fn owned(all: &[CertificateDer<'_>]) -> Vec<Certificate<'static>> {
    let copy = |der: &CertificateDer<'_>| Certificate::from_der(der).to_owned();
    all.iter().map(copy).collect()
}
