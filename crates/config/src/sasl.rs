//! Who may authenticate at which listener, and how: `sasl.*` and the settings of single listeners.

use std::collections::BTreeMap;
use std::fmt;

use crate::listener_keys::{ListenerKey, Rest, same_listener};
use crate::listeners::{Listener, SecurityProtocol};
use crate::load::problem_of;
use crate::problem::Problem;
use crate::rows::row;
use crate::secret::Secret;
use crate::values::Values;
use crate::{Settings, jaas};

/// A SASL mechanism that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
    OauthBearer,
}

impl SaslMechanism {
    pub const ALL: [SaslMechanism; 4] = [
        SaslMechanism::Plain,
        SaslMechanism::ScramSha256,
        SaslMechanism::ScramSha512,
        SaslMechanism::OauthBearer,
    ];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
            SaslMechanism::OauthBearer => "OAUTHBEARER",
        }
    }

    /// True if its users are those of the cluster, or of the listener's own settings.
    pub const fn has_passwords(self) -> bool {
        match self {
            SaslMechanism::Plain | SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => true,
            SaslMechanism::OauthBearer => false,
        }
    }
}

impl fmt::Display for SaslMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How clients of one listener authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerSasl {
    /// In the order they were given; each with the longest session in milliseconds, 0 for no end.
    pub mechanisms: Vec<(SaslMechanism, u64)>,
    /// Users that PLAIN knows here beside those of the cluster.
    pub plain_users: BTreeMap<String, Secret>,
}

const MECHANISMS: &str = "sasl.enabled.mechanisms";
const MAX_REAUTH: &str = "connections.max.reauth.ms";
const WITHOUT_TLS: &str = "auth.plain.without.tls";
const TOKENS_WITHOUT_TLS: &str = "oauth.tokens.without.tls";
const JWKS_URL: &str = "sasl.oauthbearer.jwks.endpoint.url";
const ISSUER: &str = "sasl.oauthbearer.expected.issuer";
const AUDIENCE: &str = "sasl.oauthbearer.expected.audience";
pub(crate) const USERS: &str = "auth.users";
pub(crate) const USERS_FILE: &str = "auth.users.file";

/// Gives every listener with SASL its mechanisms and users.
pub(crate) fn resolve(
    values: &Values,
    keys: &[ListenerKey],
    listeners: &mut [Listener],
) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    for key in keys {
        let found = listeners
            .iter()
            .find(|l| same_listener(&l.name, &key.listener));
        let what = match found {
            Some(listener) if listener.protocol.has_sasl() => continue,
            Some(listener) => format!(
                "{} is about SASL, and the listener {} speaks {}",
                key.key, listener.name, listener.protocol
            ),
            None => format!("{} is about a listener that is not there", key.key),
        };
        problems.push(problem_at(
            key,
            what,
            "give that listener the protocol SASL_SSL, or take the setting out",
        ));
    }
    for listener in listeners.iter_mut().filter(|l| l.protocol.has_sasl()) {
        match of_listener(values, keys, listener) {
            Ok(sasl) => listener.sasl = Some(sasl),
            // What all listeners share is wrong once.
            Err(problem) if problems.contains(&problem) => {}
            Err(problem) => problems.push(problem),
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems),
    }
}

fn of_listener(
    values: &Values,
    keys: &[ListenerKey],
    listener: &Listener,
) -> Result<ListenerSasl, Problem> {
    // The last one of a name wins, as elsewhere in a file; sources come in the order of their strength.
    let own = |rest: Rest| {
        let mut own = keys.iter().rev();
        own.find(|key| key.rest == rest && same_listener(&listener.name, &key.listener))
    };
    let own_mechanisms = own(Rest::Mechanisms);
    let text = own_mechanisms.map_or_else(
        || values.text(MECHANISMS).unwrap_or_default(),
        |key| &key.value,
    );
    let names = mechanisms(text).map_err(|(what, mend)| match own_mechanisms {
        Some(key) => problem_at(key, format!("{}: {what}", key.key), mend),
        None => problem_of(values, MECHANISMS, format!("{MECHANISMS}: {what}"), mend),
    })?;
    let mut mechanisms = Vec::new();
    for mechanism in names {
        let own = own(Rest::MaxReauthOf(mechanism)).or_else(|| own(Rest::MaxReauth));
        let text = own.map_or_else(
            || values.text(MAX_REAUTH).unwrap_or_default(),
            |key| key.value.trim(),
        );
        let session_ms = text.parse().map_err(|_| {
            let mend = "write milliseconds; 0 is a session without an end";
            match own {
                Some(key) => problem_at(key, format!("{} is no time", key.key), mend),
                None => problem_of(values, MAX_REAUTH, format!("{MAX_REAUTH} is no time"), mend),
            }
        })?;
        mechanisms.push((mechanism, session_ms));
    }
    let mut plain_users = BTreeMap::new();
    for mechanism in SaslMechanism::ALL {
        let Some(key) = own(Rest::Jaas(mechanism)) else {
            continue;
        };
        let users = jaas::users(mechanism, &key.value)
            .map_err(|(what, mend)| problem_at(key, format!("{}: {what}", key.key), mend))?;
        if !mechanisms.iter().any(|(enabled, _)| *enabled == mechanism) && !users.is_empty() {
            let what = format!(
                "{} has users, and the listener {} does not speak {mechanism}",
                key.key, listener.name
            );
            let mend = format!("name {mechanism} in {MECHANISMS}, or take the users out");
            return Err(problem_at(key, what, mend));
        }
        plain_users.extend(users);
    }
    Ok(ListenerSasl {
        mechanisms,
        plain_users,
    })
}

/// Reads a list of mechanisms; the error is what is wrong and how to mend it.
fn mechanisms(text: &str) -> Result<Vec<SaslMechanism>, (String, String)> {
    let spoken = SaslMechanism::ALL.map(SaslMechanism::name).join(", ");
    let mut found = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let known = SaslMechanism::ALL.into_iter().find(|m| m.name() == name);
        let Some(mechanism) = known else {
            let what = match name {
                "GSSAPI" => "GSSAPI (Kerberos) is not spoken here".to_owned(),
                name => format!("\"{name}\" is no mechanism that is spoken here"),
            };
            return Err((what, format!("use some of {spoken}")));
        };
        if !found.contains(&mechanism) {
            found.push(mechanism);
        }
    }
    match found.is_empty() {
        true => Err((
            "no mechanism is named".to_owned(),
            format!("use some of {spoken}"),
        )),
        false => Ok(found),
    }
}

fn problem_at(key: &ListenerKey, what: String, mend: impl Into<String>) -> Problem {
    Problem {
        what,
        place: key.source.to_string(),
        value: None,
        mend: mend.into(),
    }
}

/// Settings that would leave a listener less protected than they say, or protect none.
pub(crate) fn check(settings: &Settings) -> Vec<Problem> {
    let values = &settings.values;
    let mut problems = Vec::new();
    let speaks = |listener: &Listener, mechanism| {
        let sasl = listener.sasl.as_ref();
        sasl.is_some_and(|s| s.mechanisms.iter().any(|(m, _)| *m == mechanism))
    };
    let mut listeners = settings.listeners.iter();
    let open = |listener: &Listener, mechanism| {
        listener.protocol == SecurityProtocol::SaslPlaintext && speaks(listener, mechanism)
    };
    let bearer = SaslMechanism::OauthBearer;
    if let Some(listener) = listeners.clone().find(|l| open(l, bearer))
        && !settings.oauth_tokens_without_tls
    {
        let what = format!(
            "the listener {} takes tokens with OAUTHBEARER and has no TLS: whoever hears the network has \
             them",
            listener.name
        );
        let mend = format!(
            "map it to SASL_SSL; where nobody else can listen, {TOKENS_WITHOUT_TLS}=true allows it"
        );
        problems.push(problem_of(values, TOKENS_WITHOUT_TLS, what, mend));
    }
    if let Some(listener) = listeners.clone().find(|l| speaks(l, bearer)) {
        problems.extend(of_tokens(settings, &listener.name));
    }
    if let Some(listener) = listeners.find(|l| open(l, SaslMechanism::Plain))
        && !settings.auth_plain_without_tls
    {
        let what = format!(
            "the listener {} takes passwords with PLAIN and has no TLS: whoever hears the network has \
             them",
            listener.name
        );
        let mend = format!(
            "map it to SASL_SSL, or use SCRAM-SHA-512; where nobody else can listen, {WITHOUT_TLS}=true \
             allows it"
        );
        problems.push(problem_of(values, WITHOUT_TLS, what, mend));
    }
    if !settings.listeners.iter().any(|l| l.protocol.has_sasl()) {
        let set = [MECHANISMS, WITHOUT_TLS, USERS, USERS_FILE, MAX_REAUTH];
        let is_set = |name: &&str| {
            let default = row(name).and_then(|row| row.default.as_deref());
            values
                .set_text(name)
                .is_some_and(|text| Some(text) != default)
        };
        let set = set.into_iter().find(is_set);
        if let Some(name) = set {
            let what = format!("{name} is set, and no listener asks anybody who they are");
            let mend = format!(
                "give a listener the protocol SASL_SSL (listeners=SASL_SSL://:9094), or take {name} out"
            );
            problems.push(problem_of(values, name, what, mend));
        }
    }
    if let Some(users) = &settings.auth_users
        && let Err(what) = users_of_text(users.expose())
    {
        let what = format!("{USERS}: {what}");
        problems.push(problem_of(
            values,
            USERS,
            what,
            "write NAME:PASSWORD,NAME:PASSWORD",
        ));
    }
    problems
}

/// What tokens are checked with: without any one of these a token of anybody, or for anything, would do
/// (CVE-2026-33557).
fn of_tokens(settings: &Settings, listener: &str) -> Vec<Problem> {
    let values = &settings.values;
    let is_there =
        |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
    let url = &settings.sasl_oauthbearer_jwks_endpoint_url;
    let needed = [
        (
            JWKS_URL,
            is_there(url),
            "no keys to check the tokens' signatures with are named",
            "name the issuer's keys: sasl.oauthbearer.jwks.endpoint.url=https://HOST/PATH or \
             file:///PATH",
        ),
        (
            ISSUER,
            is_there(&settings.sasl_oauthbearer_expected_issuer),
            "no issuer is named whose tokens are good",
            "name it as its tokens do in iss: sasl.oauthbearer.expected.issuer=https://HOST/REALM",
        ),
        (
            AUDIENCE,
            settings
                .sasl_oauthbearer_expected_audience
                .split(',')
                .any(|audience| !audience.trim().is_empty()),
            "nothing tells tokens for this cluster from tokens for anything else",
            "name what the issuer writes into aud for it: sasl.oauthbearer.expected.audience=kafka",
        ),
    ];
    let mut problems: Vec<Problem> = needed
        .into_iter()
        .filter(|(_, is_there, ..)| !is_there)
        .map(|(name, _, what, mend)| {
            let what = format!("the listener {listener} speaks OAUTHBEARER, and {what}");
            problem_of(values, name, what, mend)
        })
        .collect();
    let known = |url: &str| {
        let scheme = url.split(':').next().unwrap_or_default();
        ["https", "file"].contains(&scheme.to_ascii_lowercase().as_str())
    };
    if let Some(url) = url.as_deref().map(str::trim)
        && !url.is_empty()
        && !known(url)
    {
        let what = format!("{JWKS_URL} begins neither with https:// nor with file:///");
        let mend = "over anything else whoever is in between could put keys of their own: name an \
                    https URL, or a file that you keep up to date";
        problems.push(problem_of(values, JWKS_URL, what, mend));
    }
    problems
}

/// The longest name or password of a user that is made from the settings.
const MAX_USER_BYTES: usize = 255;

/// Reads users that the first start makes: `NAME:PASSWORD`, separated by commas or, as in a file, one a
/// line, where a password may hold commas and lines that begin with `#` are comments. The error quotes
/// nothing of it.
pub fn users_of_text(text: &str) -> Result<Vec<(String, Secret)>, String> {
    let lines = text.trim().contains('\n');
    let separator = if lines { '\n' } else { ',' };
    users_in(text.split(separator))
}

/// As [`users_of_text`], of a file: one a line, also if there is but one.
pub fn users_of_file(text: &str) -> Result<Vec<(String, Secret)>, String> {
    users_in(text.lines())
}

fn users_in<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Vec<(String, Secret)>, String> {
    let mut users: Vec<(String, Secret)> = Vec::new();
    let mut number = 0;
    for entry in entries.map(str::trim) {
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        number += 1;
        let (name, password) = entry
            .split_once(':')
            .ok_or_else(|| format!("entry {number} is no NAME:PASSWORD"))?;
        let is_text = |text: &str| !text.is_empty() && text.len() <= MAX_USER_BYTES;
        if !is_text(name) || !is_text(password) {
            return Err(format!(
                "entry {number} has a name or a password that is empty or longer than {MAX_USER_BYTES} bytes"
            ));
        }
        if users.iter().any(|(other, _)| other == name) {
            return Err(format!("entry {number} names a user again"));
        }
        users.push((name.to_owned(), Secret::new(password)));
    }
    Ok(users)
}
