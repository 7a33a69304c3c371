//! Where keys come from: files that change, and an https server that is not always at its best.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use support::{Signer, claims, jwks, validate};
use tempfile::TempDir;
use tidemark_oauth::{Jwks, JwksError, JwksOptions, Location, Refused};

fn options(location: Location, truststore: Option<PathBuf>) -> JwksOptions {
    JwksOptions {
        location,
        truststore,
        connect_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(20),
    }
}

fn location(url: &str) -> Result<Location, String> {
    Location::parse(url)
}

#[test]
fn a_location_is_a_file_or_https_and_nothing_else() {
    let file = |path: &str| Ok(Location::File(PathBuf::from(path)));
    assert_eq!(location("file:///etc/jwks.json"), file("/etc/jwks.json"));
    assert_eq!(location("file:/etc/jwks.json"), file("/etc/jwks.json"));
    assert_eq!(
        location("FILE://localhost/etc/jwks.json"),
        file("/etc/jwks.json")
    );
    let https = "https://id.example/certs?tenant=7";
    assert_eq!(location(https), Ok(Location::Https(https.to_owned())));
    for bad in [
        "",
        "jwks.json",
        "/etc/jwks.json",
        "http://id.example/certs",
        "ftp://id.example/",
        "https:",
        "https://",
        "https:///certs",
        "https://anna:open@id.example/",
        "https://id example/",
        "file://host/etc/jwks.json",
        "file:jwks.json",
        "file:///a%2e",
        "jar:file:///a",
        "data:{}",
        "gopher://id.example",
        "httpss://id.example",
    ] {
        assert!(location(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_file_is_read_again_when_it_changes_and_a_bad_one_is_not_used() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("jwks.json");
    let (first, second) = (Signer::new("a", "ES256"), Signer::new("b", "EdDSA"));
    let file = |content: &str| {
        // As tools that replace files do it, so that no time stamp need differ.
        let next = dir.path().join("next");
        fs::write(&next, content).unwrap();
        fs::rename(&next, &path).unwrap();
    };
    let open = || Jwks::open(options(Location::File(path.clone()), None));

    assert!(
        matches!(open(), Err(JwksError::Read { .. })),
        "there is none"
    );
    file("{}");
    let error = open().err().unwrap().to_string();
    assert!(
        error.contains("jwks.json is no JWKS") && error.contains("keys"),
        "{error}"
    );
    file(&jwks(&[&first]));
    let keys = open().unwrap();
    let (old, new) = (first.token(&claims()), second.token(&claims()));
    assert!(validate(&old, &keys.keys()).is_ok());
    assert!(matches!(keys.refresh(), Ok(false)), "it is as it was");

    file("{\"keys\":[");
    assert!(matches!(keys.refresh(), Err(JwksError::BadFile { .. })));
    assert!(matches!(keys.refresh(), Ok(false)), "told once");
    assert!(
        validate(&old, &keys.keys()).is_ok(),
        "the old ones are in use"
    );
    fs::remove_file(&path).unwrap();
    assert!(matches!(keys.refresh(), Err(JwksError::Read { .. })));
    assert!(matches!(keys.refresh(), Ok(false)), "told once");

    file(&jwks(&[&second]));
    assert!(matches!(keys.refresh(), Ok(true)));
    assert!(validate(&new, &keys.keys()).is_ok());
    assert!(matches!(
        validate(&old, &keys.keys()),
        Err(Refused::UnknownKey)
    ));

    file(&" ".repeat((1 << 20) + 1));
    let error = keys.refresh().unwrap_err().to_string();
    assert!(error.contains("1048576 bytes"), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = keys.refresh().unwrap_err().to_string();
    assert!(error.contains("no regular file"), "{error}");
}

/// A server that answers each connection with the next of the answers, byte for byte.
struct Server {
    address: SocketAddr,
    requests: Receiver<String>,
    dir: TempDir,
    authority: String,
}

impl Server {
    fn start(answers: Vec<String>) -> Server {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, requests) = channel();
        let config = Arc::new(config);
        thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let _ = seen.send(serve(&config, stream, &answer).unwrap_or_default());
            }
        });
        Server {
            address,
            requests,
            dir: TempDir::new().unwrap(),
            authority: issuer.pem(),
        }
    }

    fn url(&self) -> String {
        format!(
            "https://localhost:{}/certs?secret=sesame",
            self.address.port()
        )
    }

    fn options(&self) -> JwksOptions {
        let path = self.dir.path().join("ca.pem");
        fs::write(&path, &self.authority).unwrap();
        options(location(&self.url()).unwrap(), Some(path))
    }
}

/// The request's head. An answer that is empty never comes: the client has to give up.
fn serve(config: &Arc<ServerConfig>, stream: TcpStream, answer: &str) -> std::io::Result<String> {
    let connection = ServerConnection::new(config.clone()).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            break;
        }
        head.push(byte[0]);
    }
    if answer.is_empty() {
        let _ = stream.read(&mut byte);
    } else {
        stream.write_all(answer.as_bytes())?;
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn answer(status: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n{body}"
    )
}

#[test]
fn keys_are_fetched_over_https_and_stay_when_the_server_fails() {
    let (first, second) = (Signer::new("a", "ES256"), Signer::new("b", "ES256"));
    let good = |signer: &Signer| {
        answer(
            "200 OK",
            "content-type: application/json\r\n",
            &jwks(&[signer]),
        )
    };
    let mut large = jwks(&[&second]);
    large.insert_str(1, &" ".repeat(1 << 20));
    let cut = good(&second);
    let server = Server::start(vec![
        good(&first),
        answer("503 Service Unavailable", "", ""),
        answer("302 Found", "location: https://localhost/elsewhere\r\n", ""),
        answer("200 OK", "", "<html>sign in first</html>"),
        answer("200 OK", "", &large),
        cut[..cut.len() - 20].to_owned(),
        "SSH-2.0-OpenSSH\r\n".to_owned(),
        good(&second),
    ]);
    let keys = Jwks::open(server.options()).unwrap();
    let (old, new) = (first.token(&claims()), second.token(&claims()));
    // Fail closed: nothing was asked yet, so nobody is let in.
    assert_eq!(validate(&old, &keys.keys()), Err(Refused::NoKeys));

    assert!(keys.refresh().unwrap());
    assert!(validate(&old, &keys.keys()).is_ok());
    let request = server.requests.recv().unwrap();
    assert!(
        request.starts_with("GET /certs?secret=sesame HTTP/1.1\r\n"),
        "{request}"
    );

    for what in [
        "503",
        "redirects are not followed",
        "no JSON",
        "1048576 bytes",
        "",
        "",
    ] {
        let error = keys.refresh().unwrap_err().to_string();
        assert!(
            error.contains(what) && error.contains("https://localhost"),
            "{error}"
        );
        assert!(!error.contains("sesame"), "{error}");
        assert!(validate(&old, &keys.keys()).is_ok(), "after {error}");
    }
    assert!(keys.refresh().unwrap());
    assert!(validate(&new, &keys.keys()).is_ok());
    assert!(validate(&old, &keys.keys()).is_err());
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let server = Server::start(vec![String::new()]);
    let mut options = server.options();
    options.timeout = Duration::from_millis(300);
    let keys = Jwks::open(options).unwrap();
    let error = keys.refresh().unwrap_err().to_string();
    assert!(error.contains("timeout"), "{error}");
}

#[test]
fn only_a_server_that_the_truststore_vouches_for_is_believed() {
    let signer = Signer::new("a", "ES256");
    let good = answer("200 OK", "", &jwks(&[&signer]));
    let server = Server::start(vec![good.clone(), good.clone()]);
    let other = Server::start(vec![good]);
    // Another CA.
    let mut options = server.options();
    options.truststore = other.options().truststore;
    let keys = Jwks::open(options).unwrap();
    let error = keys.refresh().unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    assert!(keys.keys().is_empty());
    // Another name than the certificate's.
    let mut options = server.options();
    options.location = location(&server.url().replace("localhost", "127.0.0.1")).unwrap();
    let error = Jwks::open(options)
        .unwrap()
        .refresh()
        .unwrap_err()
        .to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");

    for content in [
        "",
        "no PEM",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        let options = server.options();
        fs::write(options.truststore.as_ref().unwrap(), content).unwrap();
        let error = Jwks::open(options).err().unwrap().to_string();
        assert!(error.contains("ca.pem"), "{error}");
    }
}
