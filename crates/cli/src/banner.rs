//! What a start tells: where clients connect and what they are told, where the data is and how
//! durable, who may connect, and what to try next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::{Value, json};
use tidemark_config::{Endpoint, JournalSync, Listener, SecurityProtocol, Settings};

/// What is known only once the broker has started.
#[derive(Clone, Debug)]
pub(crate) struct StartedInfo {
    pub(crate) cluster_id: String,
    /// Each listener's name and the address it is bound to, in the order of the settings.
    pub(crate) addresses: Vec<(String, SocketAddr)>,
    /// Where the admin endpoint is, if it is served.
    pub(crate) admin: Option<SocketAddr>,
    /// With `--secure`: what is where, and the lines with which clients connect.
    pub(crate) secured: Vec<(&'static str, String)>,
    /// The data directory from the root.
    pub(crate) data_dir: PathBuf,
}

/// Who may connect, and what they may do then.
fn security(settings: &Settings) -> String {
    let allowed = match &settings.authorizer {
        Some(_) => "may do what ACLs allow",
        None => "may read and write",
    };
    let open = |listener: &&Listener| match listener.protocol {
        SecurityProtocol::Plaintext => true,
        SecurityProtocol::Ssl => settings.ssl_client_auth != "required",
        SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl => false,
    };
    let listeners = settings.listeners.iter();
    let opened: Vec<&str> = (listeners.clone().filter(open))
        .map(|listener| listener.name.as_str())
        .collect();
    if opened.is_empty() {
        let mut who = Vec::new();
        if listeners.clone().any(|l| l.protocol.has_sasl()) {
            who.push("USERS: whoever authenticates as one");
        }
        if listeners.clone().any(|l| !l.protocol.has_sasl()) {
            who.push("CERTIFICATES: whoever holds one that ssl.truststore.location's CAs signed");
        }
        let everything = match &settings.authorizer {
            Some(_) => "",
            None => " everything",
        };
        return format!("{} {allowed}{everything}", who.join("; "));
    }
    match opened.len() == settings.listeners.len() {
        true => format!("OPEN: anyone who can connect {allowed}"),
        false => format!(
            "OPEN on {}: anyone who can connect there {allowed}",
            opened.join(", ")
        ),
    }
}

/// How clients of a listener say who they are.
fn authentication(settings: &Settings, listener: &Listener) -> String {
    match (&listener.sasl, listener.protocol) {
        (Some(sasl), _) => {
            let names: Vec<&str> = sasl.mechanisms.iter().map(|(m, _)| m.name()).collect();
            format!(": {}", names.join(", "))
        }
        (None, SecurityProtocol::Ssl) if settings.ssl_client_auth != "none" => {
            format!(": certificates {}", settings.ssl_client_auth)
        }
        (None, _) => String::new(),
    }
}

/// What a loss of power may take.
fn durability(sync: JournalSync) -> String {
    match sync {
        JournalSync::Always => "synced before every acknowledgement".to_owned(),
        JournalSync::Interval { ms } => format!(
            "synced {ms} ms after an acknowledgement at the latest: a loss of power may lose records \
             acknowledged in that time; commits of transactions and of offsets are synced first"
        ),
        JournalSync::Os => "synced when the system writes back: a loss of power may lose records \
             acknowledged since; commits of transactions and of offsets are synced first"
            .to_owned(),
    }
}

/// The banner for people.
pub(crate) fn banner(settings: &Settings, started: &StartedInfo) -> String {
    let mut lines = vec![format!(
        "Tidemark {} is ready: cluster {}, node {}",
        env!("CARGO_PKG_VERSION"),
        started.cluster_id,
        settings.node_id
    )];
    for (listener, address) in listeners(settings, started) {
        let told = match &listener.advertised {
            Some(endpoint) => format!("clients are told {endpoint}"),
            None => "clients are told the address they dialled".to_owned(),
        };
        lines.push(format!(
            "  listening  {address} ({}, {}{}); {told}",
            listener.name,
            listener.protocol,
            authentication(settings, listener)
        ));
    }
    lines.push(format!(
        "  data       {}; {}",
        started.data_dir.display(),
        durability(settings.journal_sync)
    ));
    lines.push(format!("  security   {}", security(settings)));
    if let Some(admin) = started.admin {
        lines.push(format!(
            "  admin      http://{admin}/metrics; tidemark txn ls{}",
            flag_for(admin)
        ));
    }
    for (word, line) in &started.secured {
        lines.push(format!("  {word:<10} {line}"));
    }
    if let Some(try_next) = try_next(settings, started).filter(|_| started.secured.is_empty()) {
        lines.push(format!("  try        {try_next}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The banner for programs, as one line of JSON.
pub(crate) fn banner_json(settings: &Settings, started: &StartedInfo) -> String {
    let listeners: Vec<Value> = listeners(settings, started)
        .map(|(listener, address)| {
            json!({
                "name": listener.name,
                "protocol": listener.protocol.to_string(),
                "mechanisms": listener.sasl.as_ref().map(|sasl| {
                    sasl.mechanisms.iter().map(|(m, _)| m.name()).collect::<Vec<_>>()
                }),
                "address": address.to_string(),
                "advertised": listener.advertised.as_ref().map(Endpoint::to_string),
            })
        })
        .collect();
    let banner = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cluster_id": started.cluster_id,
        "node_id": settings.node_id,
        "listeners": listeners,
        "data_dir": started.data_dir.display().to_string(),
        "durability": durability(settings.journal_sync),
        "security": security(settings),
        "admin": started.admin.map(|admin| admin.to_string()),
        "try": try_next(settings, started),
    });
    let mut banner = banner;
    if !started.secured.is_empty() {
        let lines = started.secured.iter();
        banner["secured"] = lines
            .map(|(word, line)| ((*word).to_owned(), Value::from(line.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        banner["try"] = Value::Null;
    }
    format!("{banner}\n")
}

fn listeners<'a>(
    settings: &'a Settings,
    started: &'a StartedInfo,
) -> impl Iterator<Item = (&'a Listener, SocketAddr)> {
    started.addresses.iter().filter_map(|(name, address)| {
        let listener = settings.listeners.iter().find(|l| l.name == *name)?;
        Some((listener, *address))
    })
}

/// What clients dial: the first listener, as they are told of it.
pub(crate) fn dial(settings: &Settings, started: &StartedInfo) -> Option<String> {
    let (listener, address) = listeners(settings, started).next()?;
    Some(match &listener.advertised {
        Some(endpoint) => endpoint.to_string(),
        None => dialable(address).to_string(),
    })
}

fn try_next(settings: &Settings, started: &StartedInfo) -> Option<String> {
    let (listener, address) = listeners(settings, started).next()?;
    let dial = match &listener.advertised {
        Some(endpoint) => endpoint.to_string(),
        None => dialable(address).to_string(),
    };
    let mut with = String::new();
    if listener.protocol != SecurityProtocol::Plaintext {
        let protocol = listener.protocol.to_string().to_lowercase();
        with += &format!(" -X security.protocol={protocol}");
    }
    if let Some(sasl) = &listener.sasl {
        let usual = sasl
            .mechanisms
            .iter()
            .map(|(mechanism, _)| *mechanism)
            .filter(|mechanism| mechanism.has_passwords())
            // PLAIN if it is there: kcat is often built with a librdkafka whose SCRAM is too old.
            .min();
        with += &match usual {
            Some(mechanism) => format!(
                " -X sasl.mechanism={mechanism} -X sasl.username=USER -X sasl.password=PASSWORD"
            ),
            None => " -X sasl.mechanism=OAUTHBEARER -X sasl.oauthbearer.method=oidc -X \
                     sasl.oauthbearer.token.endpoint.url=URL -X sasl.oauthbearer.client.id=ID -X \
                     sasl.oauthbearer.client.secret=SECRET"
                .to_owned(),
        };
    }
    if listener.protocol.has_tls() {
        with += " -X ssl.ca.location=CA.pem";
    }
    if listener.protocol == SecurityProtocol::Ssl && settings.ssl_client_auth == "required" {
        with += " -X ssl.certificate.location=CLIENT.pem -X ssl.key.location=CLIENT.key";
    }
    Some(format!(
        "echo hello | kcat -b {dial}{with} -P -t greetings; kcat -b {dial}{with} -C -t greetings -e"
    ))
}

/// What the txn command has to be told to find the endpoint.
fn flag_for(admin: SocketAddr) -> String {
    match admin.to_string() {
        usual if usual == crate::txn::DEFAULT_ADMIN => String::new(),
        other => format!(" --admin {other}"),
    }
}

/// An address that this machine can dial: no one can dial "every address".
fn dialable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use tidemark_config::{Inputs, load};

    use super::*;

    fn settings(flags: &[(&str, &str)]) -> Settings {
        let flags = flags
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let inputs = Inputs {
            flags,
            ..Inputs::default()
        };
        load(&inputs).unwrap().settings
    }

    fn started(addresses: &[(&str, &str)]) -> StartedInfo {
        StartedInfo {
            cluster_id: "AAECAwQFBgcICQoLDA0ODw".to_owned(),
            addresses: addresses
                .iter()
                .map(|(name, address)| ((*name).to_owned(), address.parse().unwrap()))
                .collect(),
            admin: Some("127.0.0.1:9644".parse().unwrap()),
            secured: Vec::new(),
            data_dir: PathBuf::from("/srv/tidemark-data"),
        }
    }

    #[test]
    fn a_first_start_tells_all_that_matters() {
        let text = banner(&settings(&[]), &started(&[("PLAINTEXT", "127.0.0.1:9092")]));
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "Tidemark {version} is ready: cluster AAECAwQFBgcICQoLDA0ODw, node 0\n  \
             listening  127.0.0.1:9092 (PLAINTEXT, PLAINTEXT); clients are told the address they dialled\n  \
             data       /srv/tidemark-data; synced before every acknowledgement\n  \
             security   OPEN: anyone who can connect may read and write\n  \
             admin      http://127.0.0.1:9644/metrics; tidemark txn ls\n  \
             try        echo hello | kcat -b 127.0.0.1:9092 -P -t greetings; kcat -b 127.0.0.1:9092 -C -t greetings -e\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn what_a_loss_of_power_may_take_is_told() {
        let text = |mode| banner(&settings(&[("journal-sync", mode)]), &started(&[]));
        assert!(text("always").contains("; synced before every acknowledgement\n"));
        for (mode, told) in [("interval:250", "250 ms"), ("os", "writes back")] {
            let text = text(mode);
            assert!(
                text.contains(told) && text.contains("may lose records"),
                "{text}"
            );
        }
    }

    #[test]
    fn each_listener_is_told_with_what_its_clients_are_told() {
        let settings = settings(&[
            ("listeners", "IN://:9092,OUT://:9094"),
            ("advertised-listeners", "OUT://kafka.example.com:443"),
            (
                "listener-security-protocol-map",
                "IN:PLAINTEXT,OUT:PLAINTEXT",
            ),
        ]);
        let started = started(&[("IN", "0.0.0.0:9092"), ("OUT", "[::]:9094")]);
        let text = banner(&settings, &started);
        assert!(
            text.contains(
                "0.0.0.0:9092 (IN, PLAINTEXT); clients are told the address they dialled"
            )
        );
        assert!(
            text.contains("[::]:9094 (OUT, PLAINTEXT); clients are told kafka.example.com:443")
        );
        assert!(text.contains("kcat -b 127.0.0.1:9092 "), "{text}");

        let line = banner_json(&settings, &started);
        assert_eq!(line.lines().count(), 1);
        let json: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["listeners"][0]["advertised"], Value::Null);
        assert_eq!(json["listeners"][1]["advertised"], "kafka.example.com:443");
        assert_eq!(json["listeners"][1]["address"], "[::]:9094");
        assert_eq!(json["data_dir"], "/srv/tidemark-data");
        assert_eq!(json["node_id"], 0);
    }

    #[test]
    fn who_may_connect_is_told_for_listeners_with_tls() {
        let text = |listeners, auth| {
            let settings = settings(&[
                ("listeners", listeners),
                ("ssl-keystore-location", "server.pem"),
                ("ssl-truststore-location", "ca.pem"),
                ("ssl-client-auth", auth),
            ]);
            banner(&settings, &started(&[("SSL", "127.0.0.1:9093")]))
        };
        assert!(text("SSL://:9093", "requested").contains("OPEN: anyone"));
        let closed = text("SSL://:9093", "required");
        assert!(
            closed.contains("CERTIFICATES: whoever holds one"),
            "{closed}"
        );
        assert!(closed.contains("-X ssl.certificate.location="), "{closed}");
        let mixed = text("PLAINTEXT://:9092,SSL://:9093", "required");
        assert!(mixed.contains("OPEN on PLAINTEXT: anyone"), "{mixed}");
    }

    #[test]
    fn how_one_authenticates_is_told_for_listeners_with_sasl() {
        let settings = settings(&[
            ("listeners", "SASL_SSL://:9094,SASL_PLAINTEXT://:9095"),
            ("ssl-keystore-location", "server.pem"),
            ("sasl-enabled-mechanisms", "SCRAM-SHA-512,SCRAM-SHA-256"),
            ("auth-users", "alice:hunter2"),
        ]);
        let started = started(&[
            ("SASL_SSL", "127.0.0.1:9094"),
            ("SASL_PLAINTEXT", "127.0.0.1:9095"),
        ]);
        let text = banner(&settings, &started);
        assert!(
            text.contains("(SASL_SSL, SASL_SSL: SCRAM-SHA-512, SCRAM-SHA-256);"),
            "{text}"
        );
        assert!(
            text.contains("USERS: whoever authenticates as one may read and write"),
            "{text}"
        );
        let line = "-X security.protocol=sasl_ssl -X sasl.mechanism=SCRAM-SHA-256 \
                    -X sasl.username=USER -X sasl.password=PASSWORD -X ssl.ca.location=CA.pem";
        assert!(text.contains(line), "{text}");
        let json: Value = serde_json::from_str(&banner_json(&settings, &started)).unwrap();
        assert_eq!(json["listeners"][1]["mechanisms"][0], "SCRAM-SHA-512");
        assert!(!text.contains("hunter") && !json.to_string().contains("hunter"));
    }

    #[test]
    fn the_line_to_try_dials_what_clients_can_reach() {
        let advertised = settings(&[("advertised-listeners", "PLAINTEXT://h.example:1")]);
        let text = banner(&advertised, &started(&[("PLAINTEXT", "127.0.0.1:9092")]));
        assert!(text.contains("kcat -b h.example:1 "), "{text}");
        assert_eq!(dialable("[::]:1".parse().unwrap()).to_string(), "[::1]:1");
        assert_eq!(
            dialable("10.0.0.9:1".parse().unwrap()).to_string(),
            "10.0.0.9:1"
        );
    }
}
