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
const HARMLESS: [&str; 15] = [
    // How a broker of Kafka's logs in at another: there are no others here.
    "sasl.client.callback.handler.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
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

/// The same, whole families: of GSSAPI, which is refused where it is asked for, and of logging in at
/// other brokers.
const HARMLESS_FAMILIES: [&str; 5] = [
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.oauthbearer.assertion.",
    "sasl.oauthbearer.client.credentials.",
    "sasl.oauthbearer.token.endpoint.",
];

/// What to do instead of a setting that has no counterpart.
const INSTEAD: [(&str, &str); 12] = [
    (
        "sasl.oauthbearer.allow.unverified.audience",
        "take it out: a token's audience is always checked",
    ),
    (
        "sasl.oauthbearer.allow.unverified.issuer",
        "take it out: a token's issuer is always checked",
    ),
    (
        "sasl.oauthbearer.jwt.validator.class",
        "take it out: signature, issuer, audience and times of a token are always checked",
    ),
    (
        "sasl.jaas.config",
        "write it for one listener and mechanism: listener.name.NAME.plain.sasl.jaas.config",
    ),
    (
        "sasl.server.callback.handler.class",
        "take it out: there are no classes to load here",
    ),
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
    let listeners = settings.listeners.iter();
    let secured = Secured {
        all: (listeners.clone())
            .filter(|l| l.protocol.has_tls() || l.protocol.has_sasl())
            .map(|l| (l.name.as_str(), l.protocol))
            .collect(),
    };
    let mut problems: Vec<Problem> = passed_over
        .iter()
        .filter(|set| !set.value.trim().is_empty())
        .filter_map(|set| secured.refuse(set))
        .collect();
    let asks = |protocol| protocol == SecurityProtocol::Ssl;
    if settings.ssl_client_auth == "required" && !listeners.clone().any(|l| asks(l.protocol)) {
        let what =
            "certificates are required of clients, and no listener asks for any: none speaks \
                    SSL"
            .to_owned();
        let mend = "give a listener the protocol SSL (listeners=SSL://:9093), or take \
                    ssl.client.auth out";
        problems.push(problem_of(values, "ssl.client.auth", what, mend));
        return problems;
    }
    let Some((listener, protocol)) = secured.first(SecurityProtocol::has_tls) else {
        return problems;
    };
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
            "listener {listener} speaks {protocol}, and ssl.keystore.location names no certificate"
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

/// The listeners that are to be more than open, and what they speak.
struct Secured<'a> {
    all: Vec<(&'a str, SecurityProtocol)>,
}

impl<'a> Secured<'a> {
    fn first(&self, has: impl Fn(SecurityProtocol) -> bool) -> Option<(&'a str, SecurityProtocol)> {
        self.all
            .iter()
            .find(|(_, protocol)| has(*protocol))
            .copied()
    }

    /// A problem unless the setting is known to protect nothing.
    fn refuse(&self, set: &PassedOver) -> Option<Problem> {
        let PassedOver { key, value, source } = set;
        let lower = key.to_ascii_lowercase();
        let is_security = |name: &str| {
            ["ssl.", "sasl.", "principal."]
                .iter()
                .any(|family| name.starts_with(family))
        };
        let of_one = self.all.iter().find_map(|listener| {
            let prefix = format!("listener.name.{}.", listener.0.to_ascii_lowercase());
            Some((*listener, lower.strip_prefix(&prefix)?))
        });
        let ((listener, protocol), mend) = if let Some((listener, rest)) = of_one {
            let of_mechanism =
                rest.contains(".sasl.") || rest.ends_with(".connections.max.reauth.ms");
            if !is_security(rest) && !of_mechanism {
                return None;
            }
            let mend = match rest.contains("sasl.") || of_mechanism {
                true => "take it out: there are no classes to load and no other mechanisms here",
                false => "set it without listener.name.NAME in front: all listeners share one TLS",
            };
            (listener, mend.to_owned())
        } else {
            let of_sasl = lower.starts_with("sasl.");
            let of_tls = lower.starts_with("ssl.");
            let listener = match (of_sasl, of_tls || lower == "principal.builder.class") {
                (true, _) => self.first(SecurityProtocol::has_sasl)?,
                (_, true) => self.first(|p| p.has_tls() || (!of_tls && p.has_sasl()))?,
                (false, false) => return None,
            };
            let harmless = HARMLESS.contains(&lower.as_str())
                || HARMLESS_FAMILIES.iter().any(|f| lower.starts_with(f))
                || value.trim() == DEFAULT_BUILDER;
            if harmless {
                return None;
            }
            let mend = match INSTEAD.iter().find(|(known, _)| *known == lower) {
                Some((_, mend)) => (*mend).to_owned(),
                None => match nearest(&lower, all_names().filter(|name| is_security(name))) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "take it out".to_owned(),
                },
            };
            (listener, mend)
        };
        Some(Problem {
            what: format!("{key} has no effect, and the listener {listener} speaks {protocol}"),
            place: source.to_string(),
            value: None,
            mend,
        })
    }
}
