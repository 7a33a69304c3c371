//! `listeners`, `advertised.listeners` and `listener.security.protocol.map`.

use std::collections::BTreeMap;
use std::fmt;

use crate::sasl::ListenerSasl;

/// What a listener's connections speak below Kafka's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    Plaintext,
    /// TLS; a client may have to show a certificate (`ssl.client.auth`).
    Ssl,
    /// A client must authenticate by SASL; whoever hears the network hears all else.
    SaslPlaintext,
    /// TLS, and in it a client must authenticate by SASL. Certificates are not asked for, as in Kafka.
    SaslSsl,
}

impl SecurityProtocol {
    pub const fn has_tls(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }

    pub const fn has_sasl(self) -> bool {
        matches!(
            self,
            SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl
        )
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecurityProtocol::Plaintext => f.write_str("PLAINTEXT"),
            SecurityProtocol::Ssl => f.write_str("SSL"),
            SecurityProtocol::SaslPlaintext => f.write_str("SASL_PLAINTEXT"),
            SecurityProtocol::SaslSsl => f.write_str("SASL_SSL"),
        }
    }
}

/// A host and a port. Shows as HOST:PORT, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Without brackets; empty for every address.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// One place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// A free name, upper case as in Kafka.
    pub name: String,
    pub protocol: SecurityProtocol,
    /// As it was given: an empty host is every address, port 0 any free one.
    pub bind: Endpoint,
    /// What clients of this listener are told; None: the address each of them dialled.
    pub advertised: Option<Endpoint>,
    /// How its clients authenticate; there where the protocol has SASL, and nowhere else.
    pub sasl: Option<ListenerSasl>,
}

impl Listener {
    /// The host to bind to: an empty one is every IPv4 address.
    pub fn bind_host(&self) -> &str {
        match self.bind.host.as_str() {
            "" => "0.0.0.0",
            host => host,
        }
    }
}

/// What is wrong with which of the settings, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerError {
    pub(crate) key: &'static str,
    pub(crate) what: String,
    pub(crate) mend: String,
}

const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";
const MAP: &str = "listener.security.protocol.map";

fn wrong(key: &'static str, what: String, mend: impl Into<String>) -> ListenerError {
    let mend = mend.into();
    ListenerError { key, what, mend }
}

/// The texts of the settings that make the listeners.
pub(crate) struct ListenerTexts<'a> {
    pub(crate) listeners: &'a str,
    pub(crate) advertised: &'a str,
    pub(crate) protocol_map: &'a str,
    pub(crate) controller_names: &'a str,
}

/// Brings the four settings together. Listeners of Kafka's controllers are left out.
pub(crate) fn resolve(texts: &ListenerTexts<'_>) -> Result<Vec<Listener>, ListenerError> {
    let map = protocol_map(texts.protocol_map)?;
    let controller: Vec<String> = texts
        .controller_names
        .split(',')
        .map(|name| name.trim().to_ascii_uppercase())
        .collect();
    let bound = endpoints(LISTENERS, texts.listeners)?;
    let mut advertised = endpoints(ADVERTISED, texts.advertised)?;
    advertised.retain(|(name, _)| !controller.contains(name));
    check_advertised(&bound, &advertised)?;

    let mut listeners = Vec::new();
    for (name, bind) in bound {
        if controller.contains(&name) {
            continue;
        }
        let protocol = protocol_of(&name, &map)?;
        let advertised = advertised
            .iter()
            .find(|(advertised, _)| *advertised == name)
            .map(|(_, endpoint)| endpoint.clone());
        listeners.push(Listener {
            name,
            protocol,
            bind,
            advertised,
            sasl: None,
        });
    }
    if listeners.is_empty() {
        return Err(wrong(
            LISTENERS,
            "no listener is left for clients".to_owned(),
            "add one that is not in controller.listener.names: listeners=PLAINTEXT://:9092",
        ));
    }
    Ok(listeners)
}

fn endpoints(key: &'static str, text: &str) -> Result<Vec<(String, Endpoint)>, ListenerError> {
    let mut found: Vec<(String, Endpoint)> = Vec::new();
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let example = "write NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092";
        let (name, address) = item.split_once("://").ok_or_else(|| {
            wrong(
                key,
                format!("{key} has \"{item}\", without a name"),
                example,
            )
        })?;
        let endpoint = parse_endpoint(address)
            .map_err(|why| wrong(key, format!("{key} has \"{item}\": {why}"), example))?;
        let name = name.trim().to_ascii_uppercase();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(legal) {
            return Err(wrong(
                key,
                format!("{key} has \"{item}\", a bad name"),
                example,
            ));
        }
        for (other_name, other) in &found {
            if *other_name == name {
                let what = format!("{key} names {name} twice");
                return Err(wrong(key, what, "give each listener its own name"));
            }
            if key == LISTENERS && *other == endpoint && endpoint.port != 0 {
                let what = format!("{key} has {other_name} and {name} on one address, {endpoint}");
                return Err(wrong(key, what, "give each listener its own port"));
            }
        }
        found.push((name, endpoint));
    }
    Ok(found)
}

/// Reads HOST:PORT; the host may be empty or an IPv6 address in brackets.
pub(crate) fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| "there is no port".to_owned())?;
    let port = port
        .parse::<u16>()
        .map_err(|_| format!("\"{port}\" is no port (0 to 65535)"))?;
    let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) => inner,
        None if host.contains([':', '[', ']']) => {
            return Err("an IPv6 address goes in brackets, as in [::1]:9092".to_owned());
        }
        None => host,
    };
    if host.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return Err(format!("\"{host}\" is no host"));
    }
    Ok(Endpoint {
        host: host.to_owned(),
        port,
    })
}

fn protocol_map(text: &str) -> Result<BTreeMap<String, String>, ListenerError> {
    let mut map = BTreeMap::new();
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let Some((name, protocol)) = item.split_once(':') else {
            return Err(wrong(
                MAP,
                format!("{MAP} has \"{item}\", which is no pair"),
                "write NAME:PROTOCOL, for example INTERNAL:PLAINTEXT",
            ));
        };
        let upper = |s: &str| s.trim().to_ascii_uppercase();
        let (name, protocol) = (upper(name), upper(protocol));
        if let Some(other) = map.insert(name.clone(), protocol.clone())
            && other != protocol
        {
            return Err(wrong(
                MAP,
                format!("{MAP} maps {name} to {other} and to {protocol}"),
                "keep one of the two",
            ));
        }
    }
    Ok(map)
}

fn protocol_of(
    name: &str,
    map: &BTreeMap<String, String>,
) -> Result<SecurityProtocol, ListenerError> {
    match map.get(name).map(String::as_str) {
        Some("PLAINTEXT") => Ok(SecurityProtocol::Plaintext),
        Some("SSL") => Ok(SecurityProtocol::Ssl),
        Some("SASL_PLAINTEXT") => Ok(SecurityProtocol::SaslPlaintext),
        Some("SASL_SSL") => Ok(SecurityProtocol::SaslSsl),
        Some(protocol) => Err(wrong(
            MAP,
            format!("{MAP} maps {name} to {protocol}, which is no protocol"),
            "use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        )),
        None => Err(wrong(
            MAP,
            format!("{MAP} does not map the listener {name}"),
            format!("add {name}:PLAINTEXT to {MAP}"),
        )),
    }
}

fn check_advertised(
    bound: &[(String, Endpoint)],
    advertised: &[(String, Endpoint)],
) -> Result<(), ListenerError> {
    for (name, endpoint) in advertised {
        if !bound.iter().any(|(bound, _)| bound == name) {
            let what = format!("{ADVERTISED} has {name}, which is not in listeners");
            let mend = format!("use the names of listeners, or take {name} out");
            return Err(wrong(ADVERTISED, what, mend));
        }
        if matches!(endpoint.host.as_str(), "" | "0.0.0.0" | "::") {
            let what =
                format!("{ADVERTISED} has {name} at {endpoint}, where no client can connect");
            let mend = "name the host that clients reach, or leave the setting out: then each client is told the address it dialled";
            return Err(wrong(ADVERTISED, what, mend));
        }
        if endpoint.port == 0 {
            let what = format!("{ADVERTISED} has {name} at port 0");
            return Err(wrong(ADVERTISED, what, "name the port that clients reach"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT_MAP: &str =
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL";

    fn resolve_with(
        listeners: &str,
        advertised: &str,
        protocol_map: &str,
        controller_names: &str,
    ) -> Result<Vec<Listener>, ListenerError> {
        resolve(&ListenerTexts {
            listeners,
            advertised,
            protocol_map,
            controller_names,
        })
    }

    fn endpoint(host: &str, port: u16) -> Endpoint {
        let host = host.to_owned();
        Endpoint { host, port }
    }

    #[test]
    fn names_are_free_and_each_may_be_advertised() {
        let listeners = resolve_with(
            "inside://:9092, OUTSIDE://[::1]:0",
            "OUTSIDE://kafka.example.com:443",
            "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "",
        )
        .unwrap();
        assert_eq!(listeners.len(), 2);
        assert_eq!(listeners[0].name, "INSIDE");
        assert_eq!(listeners[0].bind, endpoint("", 9092));
        assert_eq!(listeners[0].bind_host(), "0.0.0.0");
        assert_eq!(listeners[0].advertised, None);
        assert_eq!(listeners[1].bind.to_string(), "[::1]:0");
        assert_eq!(
            listeners[1].advertised,
            Some(endpoint("kafka.example.com", 443))
        );
    }

    #[test]
    fn a_controllers_listener_is_left_out() {
        let listeners = resolve_with(
            "PLAINTEXT://:9092,CONTROLLER://:9093",
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            DEFAULT_MAP,
            "CONTROLLER",
        )
        .unwrap();
        assert_eq!(listeners.len(), 1);
        assert_eq!(listeners[0].advertised, Some(endpoint("localhost", 9092)));

        // Also where a flag gave other listeners than the file that advertises it.
        let advertised = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093";
        let listeners = resolve_with("PLAINTEXT://:1", advertised, DEFAULT_MAP, "CONTROLLER");
        assert_eq!(listeners.unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_work_is_refused_and_says_which_setting() {
        let cases = [
            ("", "", LISTENERS),
            ("PLAINTEXT", "", LISTENERS),
            ("PLAINTEXT://9092", "", LISTENERS),
            ("PLAINTEXT://h:99999", "", LISTENERS),
            ("PLAINTEXT://::1:9092", "", LISTENERS),
            ("PLAINTEXT://a/b:9092", "", LISTENERS),
            ("://h:9092", "", LISTENERS),
            ("PLAINTEXT://h:1,PLAINTEXT://h:2", "", LISTENERS),
            ("PLAINTEXT://h:1,SSL://h:1", "", LISTENERS),
            ("OTHER://h:1", "", MAP),
            ("PLAINTEXT://h:1", "OTHER://h:1", ADVERTISED),
            ("PLAINTEXT://h:1", "PLAINTEXT://0.0.0.0:1", ADVERTISED),
            ("PLAINTEXT://h:1", "PLAINTEXT://:1", ADVERTISED),
            ("PLAINTEXT://h:1", "PLAINTEXT://h:0", ADVERTISED),
        ];
        for (listeners, advertised, key) in cases {
            let error = resolve_with(listeners, advertised, DEFAULT_MAP, "").unwrap_err();
            assert_eq!(error.key, key, "{listeners} {advertised}: {}", error.what);
        }
        let no_pair = resolve_with("PLAINTEXT://h:1", "", "PLAINTEXT", "").unwrap_err();
        assert_eq!(no_pair.key, MAP);
        let two = resolve_with(
            "PLAINTEXT://h:1",
            "",
            "PLAINTEXT:SSL,PLAINTEXT:PLAINTEXT",
            "",
        );
        assert_eq!(two.unwrap_err().key, MAP);
        let no_protocol = resolve_with("PLAINTEXT://h:1", "", "PLAINTEXT:TELNET", "").unwrap_err();
        assert_eq!(no_protocol.key, MAP);
    }
}
