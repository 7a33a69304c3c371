//! What may not be passed over where a listener is to be secured: a broker that is half secured looks
//! like one that is secured.

use crate::Settings;
use crate::listeners::SecurityProtocol;
use crate::load::problem_of;
use crate::problem::Problem;
use crate::rows::all_names;
use crate::suggest::nearest;
use crate::values::Source;

/// A setting that nobody here reads, and what it was set to.
pub(crate) struct PassedOver {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Settings of Kafka's about security that may be passed over: they protect nothing more or less.
const HARMLESS: [&str; 10] = [
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    // What clients of Kafka check; and passwords of stores that PEM does not have.
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.password",
    // The version that Java asks its provider for; ssl.enabled.protocols says what is spoken.
    "ssl.protocol",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.password",
];

/// What to do instead of a setting that has no counterpart.
const INSTEAD: [(&str, &str); 7] = [
    (
        "ssl.keystore.certificate.chain",
        "write the chain into a file and name it in ssl.keystore.location",
    ),
    (
        "ssl.keystore.key",
        "write the key into a file and name it in ssl.keystore.location or tls.key.location",
    ),
    (
        "ssl.truststore.certificates",
        "write the CAs into a file and name it in ssl.truststore.location",
    ),
    (
        "ssl.cipher.suites",
        "take it out: only suites that are safe today are offered",
    ),
    (
        "ssl.engine.factory.class",
        "take it out: there are no classes to load here",
    ),
    (
        "ssl.provider",
        "take it out: there is one implementation of TLS here",
    ),
    (
        "principal.builder.class",
        "take it out: ssl.principal.mapping.rules says who a client is",
    ),
];

/// Kafka's own default, in files that name it.
const DEFAULT_BUILDER: &str =
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder";

/// Settings that would leave a listener less protected than they say.
pub(crate) fn check(settings: &Settings, passed_over: &[PassedOver]) -> Vec<Problem> {
    let values = &settings.values;
    let secured: Vec<&str> = (settings.listeners.iter())
        .filter(|listener| listener.protocol == SecurityProtocol::Ssl)
        .map(|listener| listener.name.as_str())
        .collect();
    let Some(listener) = secured.first() else {
        if settings.ssl_client_auth != "required" {
            return Vec::new();
        }
        let what =
            "certificates are required of clients, and no listener asks for any: none speaks \
                    SSL"
            .to_owned();
        let mend = "give a listener the protocol SSL (listeners=SSL://:9093), or take \
                    ssl.client.auth out";
        return vec![problem_of(values, "ssl.client.auth", what, mend)];
    };
    let mut problems: Vec<Problem> = passed_over
        .iter()
        .filter(|set| !set.value.trim().is_empty())
        .filter_map(|set| refuse(set, &secured))
        .collect();
    for (key, store, kind) in [
        (
            "ssl.keystore.type",
            "ssl.keystore.location",
            &settings.ssl_keystore_type,
        ),
        (
            "ssl.truststore.type",
            "ssl.truststore.location",
            &settings.ssl_truststore_type,
        ),
    ] {
        let to_p12 = match kind.as_str() {
            "PEM" => continue,
            "JKS" => {
                "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype \
                 PKCS12, then "
            }
            _ => "",
        };
        let what = format!("{store} is to be a {kind} store, and only PEM is read");
        let mend = format!(
            "convert it: {to_p12}openssl pkcs12 -in store.p12 -nodes -out store.pem; then name that \
             file in {store}, with {key}=PEM"
        );
        problems.push(problem_of(values, key, what, mend));
    }
    if settings.ssl_keystore_location.is_none() {
        let what = format!(
            "listener {listener} speaks SSL, and ssl.keystore.location names no certificate"
        );
        let mend = "name a PEM file with the certificate chain and the key: \
                    ssl.keystore.location=/etc/tidemark/server.pem";
        problems.push(problem_of(values, "ssl.keystore.location", what, mend));
    }
    if settings.ssl_client_auth != "none" && settings.ssl_truststore_location.is_none() {
        let what = format!(
            "clients are asked for certificates (ssl.client.auth={}), and no CA is named that signs \
             them",
            settings.ssl_client_auth
        );
        let mend =
            "name a PEM file with the CAs: ssl.truststore.location=/etc/tidemark/clients-ca.pem";
        problems.push(problem_of(values, "ssl.truststore.location", what, mend));
    }
    problems
}

/// A problem unless the setting is known to protect nothing.
fn refuse(set: &PassedOver, secured: &[&str]) -> Option<Problem> {
    let PassedOver { key, value, source } = set;
    let lower = key.to_ascii_lowercase();
    let of_one = secured.iter().find_map(|name| {
        let prefix = format!("listener.name.{}.", name.to_ascii_lowercase());
        lower.strip_prefix(&prefix)
    });
    let is_security = |name: &str| {
        ["ssl.", "sasl.", "principal."]
            .iter()
            .any(|family| name.starts_with(family))
    };
    let mend = if let Some(rest) = of_one {
        if !is_security(rest) {
            return None;
        }
        "set it without listener.name.NAME in front: all listeners share one security".to_owned()
    } else {
        let concerns = lower.starts_with("ssl.") || lower == "principal.builder.class";
        if !concerns || HARMLESS.contains(&lower.as_str()) || value.trim() == DEFAULT_BUILDER {
            return None;
        }
        match INSTEAD.iter().find(|(known, _)| *known == lower) {
            Some((_, mend)) => (*mend).to_owned(),
            None => match nearest(&lower, all_names().filter(|name| is_security(name))) {
                Some(near) => format!("did you mean {near}?"),
                None => "take it out".to_owned(),
            },
        }
    };
    Some(Problem {
        what: format!(
            "{key} has no effect, and the listener {} speaks SSL",
            secured[0]
        ),
        place: source.to_string(),
        value: None,
        mend,
    })
}
