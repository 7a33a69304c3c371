//! Listeners with TLS: where a client is told to connect, and who has not said who it is.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tidemark_broker::Limit;
use tidemark_testkit::{RawClient, StoppedBroker, TestBroker, version};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const NAMES: [&str; 3] = ["kafka.example.com", "localhost", "127.0.0.1"];

/// A certificate for every name that is dialled here, in a file, and clients that trust it.
struct World {
    dir: TempDir,
    client: TlsConnector,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let names = NAMES.map(str::to_owned).to_vec();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = made.cert.pem();
        let keystore = certificate.clone() + &made.signing_key.serialize_pem();
        std::fs::write(dir.path().join("server.pem"), keystore).unwrap();
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        roots.add(trusted).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        World {
            dir,
            client: TlsConnector::from(Arc::new(client)),
        }
    }

    fn broker(&self) -> StoppedBroker {
        let keystore = self.dir.path().join("server.pem");
        TestBroker::builder()
            .set("listeners", "SSL://127.0.0.1:0")
            .set("ssl.keystore.location", keystore.display())
    }

    /// A connection to an address, under a name.
    async fn client(&self, address: SocketAddr, name: &'static str) -> RawClient {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = match name.parse::<IpAddr>() {
            Ok(ip) => ServerName::from(ip),
            Err(_) => ServerName::try_from(name).unwrap(),
        };
        let stream = self.client.connect(name, stream).await.unwrap();
        let (reader, writer) = tokio::io::split(stream);
        RawClient::over(reader, writer)
    }
}

/// What a client is told of where the broker is.
async fn told(client: &mut RawClient) -> (String, i32) {
    let asked = MetadataRequest::default().with_topics(None);
    let answer = client.send(version::METADATA, &asked).await;
    let broker = &answer.brokers[0];
    (broker.host.to_string(), broker.port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_the_name_it_dialled_where_nothing_is_configured() {
    let world = World::new();
    let broker = world.broker().start().await;
    let address = broker.address();
    let port = i32::from(address.port());
    for (dialled, want) in [
        ("kafka.example.com", "kafka.example.com"),
        ("localhost", "localhost"),
        // An address is no name in TLS: nothing is sent.
        ("127.0.0.1", "127.0.0.1"),
    ] {
        let mut client = world.client(address, dialled).await;
        assert_eq!(told(&mut client).await, (want.to_owned(), port));
    }
    drop(broker);

    let advertised = "SSL://elsewhere.example.com:9443";
    let broker = world.broker().set("advertised.listeners", advertised);
    let broker = broker.start().await;
    let mut client = world.client(broker.address(), "localhost").await;
    let want = ("elsewhere.example.com".to_owned(), 9443);
    assert_eq!(told(&mut client).await, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_do_not_end_have_so_many_places_and_so_long() {
    let world = World::new();
    let broker = world.broker().set("max.unauthenticated.connections", 8);
    let broker = broker.start().await;
    let address = broker.address();
    let mut served = world.client(address, "localhost").await;
    // A client is through its handshake before the broker is: now both are.
    served.send(0, &ApiVersionsRequest::default()).await;
    // A quarter of the places is what one address gets.
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut refused = TcpStream::connect(address).await.unwrap();
    assert_eq!(refused.read(&mut [0]).await.unwrap(), 0, "closed at once");
    assert_eq!(broker.broker().reached(Limit::Unauthenticated), 1);
    served.send(0, &ApiVersionsRequest::default()).await;

    broker.clock().advance(Duration::from_millis(9_999));
    served.send(0, &ApiVersionsRequest::default()).await;
    assert_eq!(broker.broker().reached(Limit::TlsHandshake), 0);
    broker.clock().advance(Duration::from_millis(1));
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "closed");
    }
    assert_eq!(broker.broker().reached(Limit::TlsHandshake), 2);
    let mut next = world.client(address, "localhost").await;
    next.send(0, &ApiVersionsRequest::default()).await;
}
