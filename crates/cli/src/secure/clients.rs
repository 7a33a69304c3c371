//! What clients need to connect: a file for those on librdkafka, one for those in Java, and the lines that
//! use them. The password is in the files, not in the lines.

use std::net::SocketAddr;
use std::path::Path;

use tidemark_config::{ADMIN_USER, Secret, TOKEN_FILE};

use super::CA_FILE;
use super::files::write_new;

const LIBRDKAFKA: &str = "client.conf";
const JAVA: &str = "client.properties";

pub(super) fn write(dir: &Path, dial: &str, password: &Secret) -> Result<(), String> {
    let ca = dir.join(CA_FILE);
    let (ca, password) = (ca.display(), password.expose());
    // librdkafka below 2.6.1, which distributions still bring, sends a nonce back that is not the
    // server's (CVE-2024-56128): with SCRAM it is refused, here and by Kafka.
    let librdkafka = format!(
        "bootstrap.servers={dial}\n\
         security.protocol=SASL_SSL\n\
         ssl.ca.location={ca}\n\
         sasl.mechanism=PLAIN\n\
         sasl.username={ADMIN_USER}\n\
         sasl.password={password}\n"
    );
    write_new(&dir.join(LIBRDKAFKA), &librdkafka)?;
    let java = format!(
        "bootstrap.servers={dial}\n\
         security.protocol=SASL_SSL\n\
         ssl.truststore.type=PEM\n\
         ssl.truststore.location={ca}\n\
         sasl.mechanism=SCRAM-SHA-512\n\
         sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
         username=\"{ADMIN_USER}\" password=\"{password}\";\n"
    );
    write_new(&dir.join(JAVA), &java)
}

/// The lines, each with the word that it stands behind.
pub(super) fn lines(
    dir: &Path,
    dial: &str,
    admin: Option<SocketAddr>,
) -> Vec<(&'static str, String)> {
    let quoted = |name: &str| quoted(&dir.join(name).display().to_string());
    let (librdkafka, java) = (quoted(LIBRDKAFKA), quoted(JAVA));
    let mut lines = vec![
        (
            "secured",
            format!(
                "{}: {CA_FILE} is for clients, the rest for nobody else",
                dir.display()
            ),
        ),
        (
            "kcat",
            format!(
                "echo hello | kcat -F {librdkafka} -P -t greetings; kcat -F {librdkafka} -C -t greetings -e"
            ),
        ),
        (
            "java",
            format!("kafka-topics.sh --bootstrap-server {dial} --command-config {java} --list"),
        ),
        (
            "python",
            format!(
                "python3 -c 'import sys, confluent_kafka.admin as k; \
                 print(*k.AdminClient(dict(line.strip().split(\"=\", 1) for line in \
                 open(sys.argv[1]))).list_topics(timeout=10).topics)' {librdkafka}"
            ),
        ),
    ];
    if admin.is_some() {
        lines.push((
            "token",
            format!("tidemark txn takes --token-file {}", quoted(TOKEN_FILE)),
        ));
    }
    lines
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
