//! Nothing that comes out of a broker shows a secret, however much it is asked to log.
//!
//! A process that logs at trace level has secrets of every kind, sees logins succeed and fail by every
//! mechanism, credentials change, its settings asked for and misread. Then each secret is looked for,
//! as it is and encoded, in all that the process has printed, logged, answered, measured and audited.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

// Other tests use the rest of it.
#[allow(dead_code)]
mod support;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, DescribeConfigsRequest, DescribeUserScramCredentialsRequest,
};
use serde_json::json;
use support::{run, tidemark};
use tidemark_sasl::{Hash, base64};
use tidemark_testkit::requests::text;
use tidemark_testkit::{RawClient, ScramClient};

/// What may be seen nowhere: a word for it, and its bytes.
#[derive(Default)]
struct Secrets(Vec<(String, Vec<u8>)>);

impl Secrets {
    fn add(&mut self, what: &str, secret: impl AsRef<[u8]>) {
        self.0.push((what.to_owned(), secret.as_ref().to_vec()));
    }

    /// What a user's password becomes, with this salt.
    fn derived(&mut self, user: &str, hash: Hash, password: &str, salt: &[u8], iterations: u32) {
        let salted = hash.salted_password(password, salt, iterations);
        let client = hash.hmac(&salted, b"Client Key");
        self.add(&format!("{user}'s salt"), salt);
        self.add(&format!("{user}'s stored key"), hash.digest(&client));
        self.add(
            &format!("{user}'s server key"),
            hash.hmac(&salted, b"Server Key"),
        );
        self.add(&format!("{user}'s client key"), client);
        self.add(&format!("{user}'s salted password"), salted);
    }

    /// Every form of a secret that a careless line could have.
    fn forms(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let list = format!("{secret:?}");
        let list = list.trim_matches(['[', ']']).to_owned();
        let base64 = base64::encode(secret);
        let unpadded = base64.trim_end_matches('=').to_owned();
        let url = unpadded.replace('+', "-").replace('/', "_");
        let mut forms = vec![
            ("as it is", secret.to_vec()),
            ("in base64", unpadded.into_bytes()),
            ("in base64 for URLs", url.into_bytes()),
            ("in hex", hex.clone().into_bytes()),
            ("in upper hex", hex.to_ascii_uppercase().into_bytes()),
            ("as a list of numbers", list.into_bytes()),
        ];
        forms.push((
            "as Rust shows bytes",
            secret.escape_ascii().to_string().into_bytes(),
        ));
        forms
    }

    /// Where a secret stands in `text`.
    fn found_in(&self, text: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        for (what, secret) in &self.0 {
            assert!(secret.len() >= 8, "{what} is too short to look for");
            for (form, bytes) in Secrets::forms(secret) {
                if text.windows(bytes.len()).any(|window| window == bytes) {
                    found.push(format!("{what} {form}"));
                }
            }
        }
        found
    }

    fn nowhere_in(&self, place: &str, text: impl AsRef<[u8]>) {
        let found = self.found_in(text.as_ref());
        assert!(found.is_empty(), "{place} shows {found:?}");
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // A test that fails leaves nothing behind.
        let _it_may_have_ended = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Who signs tokens.
struct Issuer(EcdsaKeyPair);

impl Issuer {
    fn new() -> Issuer {
        Issuer(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn jwks(&self) -> String {
        let point = self.0.public_key().as_ref();
        let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
        let key =
            json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "one", "x": x, "y": y});
        json!({ "keys": [key] }).to_string()
    }

    /// A token of dave's that ends in so many seconds.
    fn token(&self, left_s: i64) -> String {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        let claims = json!({
            "iss": "https://id.example", "aud": "kafka", "sub": "dave",
            "iat": now - 7_200, "exp": now + left_s,
        });
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": "one"}).to_string();
        let signed = format!("{}.{}", base64url(header), base64url(claims.to_string()));
        let signature = self
            .0
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", base64url(signature))
    }
}

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    let text = base64::encode(bytes.as_ref());
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

/// Starts it with all output in files: a pipe that nobody reads would stop it. Gives the banner.
fn start(dir: &Path, flags: &[&str], env: (&str, &str)) -> (Process, serde_json::Value) {
    let out = dir.join("out");
    let child = tidemark(flags)
        .env(env.0, env.1)
        .stdout(Stdio::from(File::create(&out).unwrap()))
        .stderr(Stdio::from(File::create(dir.join("err")).unwrap()))
        .spawn()
        .unwrap();
    let mut process = Process(child);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let printed = fs::read_to_string(&out).unwrap();
        if let Some((line, _)) = printed.split_once('\n') {
            return (process, serde_json::from_str(line).unwrap());
        }
        if process.0.try_wait().unwrap().is_some() || Instant::now() > until {
            panic!("no start: {}", fs::read_to_string(dir.join("err")).unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn http(address: &str, token: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2026_33558_no_secret_is_shown_by_a_broker_that_logs_everything() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| -> String {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut secrets = Secrets::default();
    let passwords = [
        ("anna", "anna-secret-Zq7x"),
        ("bert", "bert-secret-Yw8v"),
        ("cora", "cora-secret-Xe9u"),
        ("dora", "dora-secret-Wr2t"),
        ("anna, wrongly", "wrong-guess-Vt3s"),
        ("key store", "keystore-secret-Uy4r"),
        ("key", "key-secret-Tu5q"),
        ("misread", "misread-secret-Si6p"),
    ];
    for (what, password) in passwords {
        secrets.add(&format!("the password of {what}"), password);
    }
    let token = "token-secret-Ro7o-Qp8n";
    secrets.add("the admin endpoint's token", token);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = key.serialize_pem();
    let of_key = key.lines().filter(|line| !line.starts_with('-'));
    for (n, line) in of_key.enumerate() {
        secrets.add(&format!("line {n} of the TLS key"), line);
    }
    let server = file("server.pem", &(certificate.pem() + &key));
    let users = file("users", "bert:bert-secret-Yw8v\n");
    let issuer = Issuer::new();
    let jwks = file("jwks.json", &issuer.jwks());
    let jwks_url = format!("file://{jwks}");
    let tokens = [
        issuer.token(300),
        issuer.token(-3_600),
        issuer.token(300) + "x",
    ];
    for (n, token) in tokens.iter().enumerate() {
        for (part, text) in ["header", "claims", "signature"]
            .iter()
            .zip(token.split('.'))
        {
            // The header is the same for all, and no secret.
            if *part != "header" {
                secrets.add(&format!("the {part} of token {n}"), text);
            }
        }
    }
    let token_file = file("token", token);
    let properties = file(
        "server.properties",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.\
         PlainLoginModule required user_cora=\"cora-secret-Xe9u\";\n\
         ssl.keystore.password=keystore-secret-Uy4r\n\
         ssl.key.password=key-secret-Tu5q\n",
    );
    let data = dir.path().join("data").to_str().unwrap().to_owned();
    let audit = dir.path().join("audit");
    let audit_text = audit.to_str().unwrap().to_owned();
    let flags = [
        "--config",
        &properties,
        "--data-dir",
        &data,
        "--listeners",
        "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "--auth-plain-without-tls",
        "true",
        "--sasl-enabled-mechanisms",
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "--oauth-tokens-without-tls",
        "true",
        "--sasl-oauthbearer-jwks-endpoint-url",
        &jwks_url,
        "--sasl-oauthbearer-expected-issuer",
        "https://id.example",
        "--sasl-oauthbearer-expected-audience",
        "kafka",
        "--auth-users-file",
        &users,
        "--ssl-keystore-location",
        &server,
        "--admin-listen",
        "127.0.0.1:0",
        "--admin-token-file",
        &token_file,
        "--audit-log-path",
        &audit_text,
        "--log-filter",
        "trace",
        "--authorizer-class-name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "--super-users",
        "User:anna",
    ];
    let users_of_env = ("TIDEMARK_AUTH_USERS", "anna:anna-secret-Zq7x");
    let serve = [&["serve", "--json"], flags.as_slice()].concat();
    let (mut process, banner) = start(dir.path(), &serve, users_of_env);
    let address: SocketAddr = banner["listeners"][0]["address"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let ssl = banner["listeners"][1]["address"]
        .as_str()
        .unwrap()
        .to_owned();

    // Logins of every kind, good and bad.
    for (user, password, good) in [
        ("anna", "anna-secret-Zq7x", true),
        ("bert", "bert-secret-Yw8v", true),
        ("anna", "wrong-guess-Vt3s", false),
        ("nobody", "wrong-guess-Vt3s", false),
    ] {
        for hash in [Hash::Sha256, Hash::Sha512] {
            let mut client = RawClient::connect(address).await;
            let answer = client.sasl_scram(hash, user, password).await;
            assert_eq!(
                answer.error_code == 0,
                good,
                "{user} {:?}",
                answer.error_message
            );
            secrets.nowhere_in("an answer", format!("{answer:?}"));
        }
        let mut client = RawClient::connect(address).await;
        let answer = client.sasl_plain(user, password).await;
        assert_eq!(
            answer.error_code == 0,
            good,
            "{user} {:?}",
            answer.error_message
        );
    }
    for (token, good) in tokens.iter().zip([true, false, false]) {
        let mut client = RawClient::connect(address).await;
        client.sasl_handshake(1, "OAUTHBEARER").await;
        let message = format!("n,,\u{1}auth=Bearer {token}\u{1}\u{1}");
        let answer = client.sasl_token(2, message.into_bytes()).await;
        let got_in = answer.error_code == 0 && answer.auth_bytes.is_empty();
        assert_eq!(got_in, good, "{:?}", answer.error_message);
        secrets.nowhere_in("an answer to a token", format!("{answer:?}"));
    }
    let mut cora = RawClient::connect(address).await;
    assert_eq!(
        cora.sasl_plain("cora", "cora-secret-Xe9u").await.error_code,
        0
    );
    // A proof that breaks off, and bytes that are no message.
    let mut client = RawClient::connect(address).await;
    client.sasl_handshake(1, "SCRAM-SHA-256").await;
    let scram = ScramClient::new(Hash::Sha256, "anna", "anna-secret-Zq7x");
    let first = client.sasl_token(2, scram.first()).await;
    let told = String::from_utf8(first.auth_bytes.to_vec()).unwrap();
    let field = |name: &str| {
        told.split(',')
            .find_map(|f| f.strip_prefix(name))
            .unwrap()
            .to_owned()
    };
    let salt = base64::decode(&field("s=")).unwrap();
    let iterations = field("i=").parse().unwrap();
    secrets.derived("anna", Hash::Sha256, "anna-secret-Zq7x", &salt, iterations);
    let (last, _) = scram.last(&first.auth_bytes);
    let proof = String::from_utf8(last.clone()).unwrap();
    let proof = proof.split(",p=").nth(1).unwrap();
    secrets.add("a client's proof", base64::decode(proof).unwrap());
    client.sasl_token(2, last[..last.len() - 3].to_vec()).await;
    let mut client = RawClient::connect(address).await;
    client.sasl_handshake(1, "PLAIN").await;
    client.sasl_token(2, b"anna-secret-Zq7x".to_vec()).await;
    TcpStream::connect(&ssl)
        .unwrap()
        .write_all(b"anna-secret-Zq7x wrong-guess-Vt3s")
        .unwrap();

    // Credentials that change, and are asked for.
    let mut admin = RawClient::connect(address).await;
    admin
        .sasl_scram(Hash::Sha512, "anna", "anna-secret-Zq7x")
        .await;
    let salt = b"dora-salt-Po9m-0123456789".to_vec();
    secrets.derived("dora", Hash::Sha256, "dora-secret-Wr2t", &salt, 4096);
    let salted = Hash::Sha256.salted_password("dora-secret-Wr2t", &salt, 4096);
    let upsertion = |iterations: i32| {
        ScramCredentialUpsertion::default()
            .with_name(text("dora"))
            .with_mechanism(1)
            .with_iterations(iterations)
            .with_salt(salt.clone().into())
            .with_salted_password(salted.clone().into())
    };
    for iterations in [4096, 1] {
        let alter = AlterUserScramCredentialsRequest::default()
            .with_upsertions(vec![upsertion(iterations)]);
        let answer = admin.send(0, &alter).await;
        assert_eq!(answer.results[0].error_code == 0, iterations == 4096);
        secrets.nowhere_in("AlterUserScramCredentials", format!("{answer:?}"));
    }
    // By SCRAM the salt is told to whoever asks; that one place is not among those below.
    let described = admin
        .send(
            0,
            &DescribeUserScramCredentialsRequest::default().with_users(None),
        )
        .await;
    secrets.nowhere_in("DescribeUserScramCredentials", format!("{described:?}"));
    let broker = DescribeConfigsResource::default()
        .with_resource_type(4)
        .with_resource_name(text("0"))
        .with_configuration_keys(None);
    let ask = DescribeConfigsRequest::default()
        .with_resources(vec![broker])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let configs = admin.send(4, &ask).await;
    assert!(configs.results[0].configs.len() > 100);
    secrets.nowhere_in("DescribeConfigs", format!("{configs:?}"));
    let config = |name: &str| {
        let mut all = configs.results[0].configs.iter();
        all.find(|config| &*config.name == name)
            .unwrap_or_else(|| panic!("no {name}"))
    };
    assert!(config("auth.users").is_sensitive && config("auth.users").value.is_none());

    // The admin endpoint.
    let endpoint = banner["admin"].as_str().unwrap();
    for path in [
        "/metrics",
        "/v1/transactions",
        "/v1/partitions/t",
        "/readyz",
        "/nothing",
    ] {
        let answer = http(endpoint, token, path);
        secrets.nowhere_in(path, &answer);
        secrets.nowhere_in(path, http(endpoint, "another-token-altogether", path));
    }

    // Settings that explain themselves, and settings that are wrong.
    for more in [&[][..], &["--json"]] {
        let explain = [&["config", "explain"], flags.as_slice(), more].concat();
        let output = tidemark(&explain)
            .env(users_of_env.0, users_of_env.1)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        secrets.nowhere_in("config explain", &output.stdout);
        secrets.nowhere_in("config explain", &output.stderr);
    }
    let bad_users = file("bad-users", "no colon misread-secret-Si6p\n");
    let other = dir.path().join("other").to_str().unwrap().to_owned();
    let bad_jaas = file(
        "bad.properties",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=misread-secret-Si6p\n\
         sasl.jaas.config=misread-secret-Si6p\nssl.keystore.key=misread-secret-Si6p\n",
    );
    for wrong in [
        &["--auth-users", "no colon misread-secret-Si6p"][..],
        &["--auth-users-file", &bad_users],
        &["--config", &bad_jaas],
        &["--admin-token-file", &bad_users],
    ] {
        let common = [
            "serve",
            "--data-dir",
            &other,
            "--listeners",
            "SASL_PLAINTEXT://127.0.0.1:0",
            "--log-filter",
            "trace",
            "--admin-listen",
            "127.0.0.1:0",
        ];
        let (output, out, err) = run(&[&common[..], wrong].concat());
        assert_eq!(output.status.code(), Some(1), "{wrong:?}: {out}{err}");
        secrets.nowhere_in(wrong[0], out + &err);
    }

    let pid = process.0.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
    let log = fs::read(dir.path().join("err")).unwrap();
    let logged = String::from_utf8_lossy(&log);
    assert!(
        logged.contains("TRACE") || logged.contains("DEBUG"),
        "it did log: {logged}"
    );
    assert!(
        logged.contains("not authenticated"),
        "the failures were logged: {logged}"
    );
    secrets.nowhere_in("the log", &log);
    secrets.nowhere_in("the banner", fs::read(dir.path().join("out")).unwrap());
    let mut audited = Vec::new();
    for entry in fs::read_dir(&audit).unwrap() {
        audited.extend(fs::read(entry.unwrap().path()).unwrap());
    }
    let told = String::from_utf8(audited).unwrap();
    assert!(told.contains("authentication"), "{told}");
    secrets.nowhere_in("the audit log", &told);
    // That it would be seen.
    let shown = format!("{told} {:?} {}", salt, base64::encode(b"anna-secret-Zq7x"));
    let found = secrets.found_in(shown.as_bytes());
    for expected in [
        "dora's salt as a list of numbers",
        "the password of anna in base64",
    ] {
        assert!(found.iter().any(|found| found == expected), "{found:?}");
    }
}
