//! Settings of one listener: `listener.name.NAME.REST`, the name in lower case as Kafka writes it.

use crate::sasl::SaslMechanism;
use crate::values::Source;

const PREFIX: &str = "listener.name.";

/// What may stand after a listener's name, with and without a mechanism in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// `sasl.enabled.mechanisms`
    Mechanisms,
    /// `connections.max.reauth.ms`
    MaxReauth,
    /// `MECHANISM.connections.max.reauth.ms`
    MaxReauthOf(SaslMechanism),
    /// `MECHANISM.sasl.jaas.config`
    Jaas(SaslMechanism),
}

/// A setting of one listener that somebody set. Its value may be a secret and is not shown.
pub(crate) struct ListenerKey {
    /// As it was written.
    pub(crate) key: String,
    /// As it was written: in any case, and from the environment or a flag with other separators.
    pub(crate) listener: String,
    pub(crate) rest: Rest,
    pub(crate) value: String,
    pub(crate) source: Source,
}

impl Rest {
    fn all() -> impl Iterator<Item = (Rest, String)> {
        let of_mechanism = |mechanism: SaslMechanism| {
            let name = mechanism.name().to_ascii_lowercase();
            [
                (Rest::Jaas(mechanism), format!("{name}.sasl.jaas.config")),
                (
                    Rest::MaxReauthOf(mechanism),
                    format!("{name}.connections.max.reauth.ms"),
                ),
            ]
        };
        SaslMechanism::ALL
            .into_iter()
            .flat_map(of_mechanism)
            .chain([
                (Rest::Mechanisms, "sasl.enabled.mechanisms".to_owned()),
                (Rest::MaxReauth, "connections.max.reauth.ms".to_owned()),
            ])
    }
}

/// The listener and the setting of a key from a file; `None` where it is none of these.
pub(crate) fn in_file(key: &str) -> Option<(String, Rest)> {
    split(&key.to_ascii_lowercase(), |text| text.to_owned())
}

/// The same of an environment variable without `TIDEMARK_`, or of a flag without dashes in front:
/// dots and dashes are underscores there, or all are dashes.
pub(crate) fn elsewhere(name: &str) -> Option<(String, Rest)> {
    split(&plain(name), plain)
}

/// Two listeners' names that an environment variable cannot tell apart are the same.
pub(crate) fn same_listener(name: &str, written: &str) -> bool {
    plain(name) == plain(written)
}

fn plain(text: &str) -> String {
    text.to_ascii_lowercase().replace(['.', '-'], "_")
}

fn split(key: &str, written: impl Fn(&str) -> String) -> Option<(String, Rest)> {
    let key = key.strip_prefix(&written(PREFIX))?;
    Rest::all().find_map(|(rest, text)| {
        let listener = key.strip_suffix(&written(&format!(".{text}")))?;
        (!listener.is_empty()).then(|| (listener.to_owned(), rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_to_its_listener() {
        let found = in_file("listener.name.sasl_ssl.sasl.enabled.mechanisms").unwrap();
        assert_eq!(found, ("sasl_ssl".to_owned(), Rest::Mechanisms));
        let jaas = Rest::Jaas(SaslMechanism::ScramSha256);
        let found = in_file("listener.name.a.b.scram-sha-256.sasl.jaas.config").unwrap();
        assert_eq!(found, ("a.b".to_owned(), jaas));
        let found = elsewhere("LISTENER_NAME_A_B_SCRAM_SHA_256_SASL_JAAS_CONFIG").unwrap();
        assert_eq!(found, ("a_b".to_owned(), jaas));
        assert!(same_listener("A.B", &found.0));
        assert_eq!(
            elsewhere("listener-name-x-plain-sasl-jaas-config")
                .unwrap()
                .0,
            "x"
        );
        assert_eq!(
            in_file("listener.name.x.plain.connections.max.reauth.ms")
                .unwrap()
                .1,
            Rest::MaxReauthOf(SaslMechanism::Plain)
        );
        for other in [
            "listener.name.sasl.enabled.mechanisms",
            "listener.name.x.ssl.client.auth",
            "listener.name.x.gssapi.sasl.jaas.config",
            "sasl.enabled.mechanisms",
        ] {
            assert!(
                in_file(other).is_none_or(|(listener, _)| listener != "x"),
                "{other}"
            );
        }
    }
}
