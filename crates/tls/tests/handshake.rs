//! Handshakes between the broker's side and a rustls client, with certificates made here.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tidemark_tls::{ANONYMOUS, ClientAuth, PrincipalRules, Tls, TlsError, TlsOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key, as PEM. `until` is a year.
    fn sign(&self, name: &str, host: &str, until: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        // In the certificate the most general part comes first.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Shop, Inc");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

struct World {
    dir: TempDir,
    authority: Authority,
}

impl World {
    fn new() -> World {
        let world = World {
            dir: tempfile::tempdir().unwrap(),
            authority: Authority::new("the shop's CA"),
        };
        let (certificate, key) = world.authority.sign("broker", "localhost", 2090);
        world.write("server.pem", &(certificate + &key));
        world.write("ca.pem", world.authority.pem());
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn options(&self) -> TlsOptions {
        TlsOptions {
            keystore: self.path("server.pem"),
            key: None,
            truststore: Some(self.path("ca.pem")),
            client_auth: ClientAuth::None,
            tls_1_2: true,
            tls_1_3: true,
            rules: PrincipalRules::parse("").unwrap(),
        }
    }

    fn client(&self, shown: Option<&(String, String)>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        }
    }
}

/// The principal, if both sides could talk afterwards.
async fn meet(tls: &Tls, client: ClientConfig) -> Result<Arc<str>, String> {
    meet_asking(tls, client, true).await
}

async fn meet_asking(tls: &Tls, client: ClientConfig, asks: bool) -> Result<Arc<str>, String> {
    let (ours, theirs) = duplex(16 << 10);
    let name = ServerName::try_from("localhost").unwrap();
    let client = async {
        let mut stream = TlsConnector::from(Arc::new(client))
            .connect(name, theirs)
            .await?;
        stream.write_all(b"ping").await?;
        let mut answer = [0; 4];
        // In TLS 1.3 a client learns here that its certificate was refused.
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(())
    };
    let server = async {
        let mut secured = match asks {
            true => tls.accept(ours).await?,
            false => tls.accept_without_certificate(ours).await?,
        };
        let mut asked = [0; 4];
        secured.stream.read_exact(&mut asked).await?;
        secured.stream.write_all(b"pong").await?;
        secured.stream.flush().await?;
        Ok::<_, std::io::Error>(secured.principal)
    };
    let (server, client) = tokio::join!(server, client);
    match (server, client) {
        (Ok(principal), Ok(())) => Ok(principal),
        (Err(e), _) | (_, Err(e)) => Err(e.to_string()),
    }
}

#[tokio::test]
async fn a_client_that_shows_nothing_is_anonymous_or_refused() {
    let world = World::new();
    for asked in [ClientAuth::None, ClientAuth::Requested] {
        let options = TlsOptions {
            client_auth: asked,
            ..world.options()
        };
        let tls = Tls::load(options).unwrap();
        assert_eq!(&*meet(&tls, world.client(None)).await.unwrap(), ANONYMOUS);
    }
    let options = TlsOptions {
        client_auth: ClientAuth::Required,
        ..world.options()
    };
    let tls = Tls::load(options).unwrap();
    meet(&tls, world.client(None)).await.unwrap_err();
    // Where SASL says who the client is, it is not asked for one, and one it has is not looked at.
    let shown = world.authority.sign("till-7", "till-7", 2090);
    for client in [None, Some(&shown)] {
        let principal = meet_asking(&tls, world.client(client), false).await;
        assert_eq!(&*principal.unwrap(), ANONYMOUS);
    }
}

#[tokio::test]
async fn a_certificate_names_its_principal() {
    let world = World::new();
    let shown = world.authority.sign("till-7", "till-7", 2090);
    for (rules, principal) in [
        ("", r"User:CN=till-7,O=Shop\, Inc"),
        ("RULE:CN=([^,]+),.*/$1/U", "User:TILL-7"),
    ] {
        let options = TlsOptions {
            client_auth: ClientAuth::Required,
            rules: PrincipalRules::parse(rules).unwrap(),
            ..world.options()
        };
        let tls = Tls::load(options).unwrap();
        let met = meet(&tls, world.client(Some(&shown))).await.unwrap();
        assert_eq!(&*met, principal);
    }
    let options = TlsOptions {
        client_auth: ClientAuth::Required,
        rules: PrincipalRules::parse("RULE:CN=nobody/x/").unwrap(),
        ..world.options()
    };
    let why = meet(&Tls::load(options).unwrap(), world.client(Some(&shown))).await;
    assert!(why.unwrap_err().contains("ssl.principal.mapping.rules"));
}

#[tokio::test]
async fn expired_and_foreign_certificates_are_refused() {
    let world = World::new();
    let expired = world.authority.sign("till-7", "till-7", 2021);
    let foreign = Authority::new("another CA").sign("till-7", "till-7", 2090);
    for asked in [ClientAuth::Requested, ClientAuth::Required] {
        let options = TlsOptions {
            client_auth: asked,
            ..world.options()
        };
        let tls = Tls::load(options).unwrap();
        for shown in [&expired, &foreign] {
            meet(&tls, world.client(Some(shown))).await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn versions_are_those_that_are_enabled() {
    let world = World::new();
    let options = TlsOptions {
        tls_1_2: false,
        ..world.options()
    };
    let only_1_3 = Tls::load(options).unwrap();
    let mut old = world.client(None);
    meet(&only_1_3, old.clone()).await.unwrap();
    let provider = old.crypto_provider().clone();
    old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    meet(&only_1_3, old).await.unwrap_err();

    let options = TlsOptions {
        tls_1_2: false,
        tls_1_3: false,
        ..world.options()
    };
    assert!(matches!(Tls::load(options), Err(TlsError::Options(_))));
}

#[tokio::test]
async fn a_reload_changes_new_connections_and_a_bad_file_changes_nothing() {
    let mut world = World::new();
    let tls = Tls::load(world.options()).unwrap();
    assert!(!tls.reload_if_changed().unwrap());
    let old_client = world.client(None);
    let old_end = tls.expires_at();

    world.write("server.pem", "half of a file");
    assert!(matches!(
        tls.reload_if_changed(),
        Err(TlsError::Missing { .. })
    ));
    assert!(!tls.reload_if_changed().unwrap(), "told once");
    assert!(tls.reload().is_err(), "told whenever it is asked for");
    assert!(!tls.reload_if_changed().unwrap(), "tried again, told once");
    // Rights that were missing for a while need not show in the file.
    let aside = world.path("aside.pem");
    fs::rename(world.path("server.pem"), &aside).unwrap();
    assert!(matches!(
        tls.reload_if_changed(),
        Err(TlsError::Read { .. })
    ));
    fs::rename(&aside, world.path("server.pem")).unwrap();
    assert!(tls.reload_if_changed().is_err(), "another error is told");
    meet(&tls, old_client.clone()).await.unwrap();
    assert_eq!(tls.expires_at(), old_end);

    world.authority = Authority::new("the new CA");
    let (certificate, key) = world.authority.sign("broker", "localhost", 2091);
    world.write("server.pem", certificate + &key);
    assert!(tls.reload_if_changed().unwrap());
    meet(&tls, world.client(None)).await.unwrap();
    meet(&tls, old_client).await.unwrap_err();
    assert!(tls.expires_at() > old_end);
    let day_before = std::time::UNIX_EPOCH
        + std::time::Duration::from_secs(u64::try_from(tls.expires_at()).unwrap() - 86_400);
    assert_eq!(tls.days_left(day_before), 1);
}

#[test]
fn what_cannot_be_used_is_told_with_the_mend() {
    let world = World::new();
    let (certificate, key) = world.authority.sign("broker", "localhost", 2090);
    let (_, other_key) = world.authority.sign("other", "localhost", 2090);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let one_line = format!("{certificate}{}", key.trim().replace('\n', "\\n"));
    let cases: [(&[u8], &str); 9] = [
        (b"\xFE\xED\xFE\xED\0\0\0\x02", "keytool -importkeystore"),
        (b"\x30\x82\x0A\x00\x02\x01\x03\x30", "openssl pkcs12 -in"),
        (b"", "-----BEGIN CERTIFICATE-----"),
        (certificate.as_bytes(), "tls.key.location"),
        (
            &[certificate.as_bytes(), encrypted.as_bytes()].concat(),
            "openssl pkey",
        ),
        (
            &[certificate.as_bytes(), other_key.as_bytes()].concat(),
            "not that of the first",
        ),
        (&vec![b'x'; 2 << 20], "no PEM file"),
        (b"\x30\x80\x02\x01\x03\x30\x80", "openssl pkcs12 -in"),
        // As secrets of one line look that came through a variable: the key is not shown.
        (one_line.as_bytes(), "it is no PEM"),
    ];
    for (content, told) in cases {
        world.write("server.pem", content);
        let error = Tls::load(world.options()).err().expect(told).to_string();
        assert!(error.contains(told), "{told}: {error}");
        assert!(error.contains("server.pem"), "{error}");
        let secret = key.lines().nth(1).unwrap();
        let decimal = format!("{:?}", secret.as_bytes());
        assert!(!error.contains(secret), "{error}");
        assert!(!error.contains(decimal.trim_matches(['[', ']'])), "{error}");
    }

    // Certificate and key in files of their own.
    world.write("server.pem", &certificate);
    world.write("key.pem", &key);
    let options = TlsOptions {
        key: Some(world.path("key.pem")),
        ..world.options()
    };
    Tls::load(options).unwrap();

    fs::remove_file(world.path("server.pem")).unwrap();
    let error = Tls::load(world.options()).err().unwrap().to_string();
    assert!(error.contains("ssl.keystore.location"), "{error}");
    world.write("server.pem", certificate + &key);
    let options = TlsOptions {
        truststore: None,
        client_auth: ClientAuth::Required,
        ..world.options()
    };
    let error = Tls::load(options).err().unwrap().to_string();
    assert!(error.contains("ssl.truststore.location"), "{error}");
}
