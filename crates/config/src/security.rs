//! What may not be passed over where a listener is to be secured: a broker that is half secured looks
//! like one that is secured.

use crate::Settings;
use crate::listeners::SecurityProtocol;
use crate::load::problem_of;
use crate::problem::Problem;
use crate::values::Source;

/// Settings of Kafka's that say who may connect, or how well a connection is protected, and that
/// have no counterpart here: what to do instead.
const WITHOUT_COUNTERPART: [(&str, &str); 7] = [
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

/// Settings that would leave a listener less protected than they say.
pub(crate) fn check(settings: &Settings, passed_over: &[(String, Source)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let secured: Vec<_> = (settings.listeners.iter())
        .filter(|listener| listener.protocol == SecurityProtocol::Ssl)
        .collect();
    let Some(listener) = secured.first() else {
        return problems;
    };
    for (key, source) in passed_over {
        let of_one_listener = secured.iter().any(|listener| {
            let name = listener.name.to_ascii_lowercase();
            key.starts_with(&format!("listener.name.{name}."))
        });
        if of_one_listener {
            problems.push(Problem {
                what: format!(
                    "{key} is for one listener, and here all listeners share one security"
                ),
                place: source.to_string(),
                value: None,
                mend: "set it without listener.name.NAME in front".to_owned(),
            });
        }
        if let Some((_, mend)) = WITHOUT_COUNTERPART.iter().find(|(known, _)| known == key) {
            problems.push(Problem {
                what: format!(
                    "{key} has no counterpart, and listener {} speaks SSL",
                    listener.name
                ),
                place: source.to_string(),
                value: None,
                mend: (*mend).to_owned(),
            });
        }
    }
    let values = &settings.values;
    for (name, kind) in [
        ("ssl.keystore", &settings.ssl_keystore_type),
        ("ssl.truststore", &settings.ssl_truststore_type),
    ] {
        let key: &'static str = match name {
            "ssl.keystore" => "ssl.keystore.type",
            _ => "ssl.truststore.type",
        };
        let to_p12 = match kind.as_str() {
            "PEM" => continue,
            "JKS" => {
                "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype \
                 PKCS12, then "
            }
            _ => "",
        };
        let what = format!("{name}.location is to be a {kind} store, and only PEM is read");
        let mend =
            format!("convert it: {to_p12}openssl pkcs12 -in store.p12 -nodes -out store.pem");
        problems.push(problem_of(values, key, what, mend));
    }
    if settings.ssl_keystore_location.is_none() {
        let what = format!(
            "listener {} speaks SSL, and ssl.keystore.location names no certificate",
            listener.name
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
