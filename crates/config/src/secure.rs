//! `serve --secure`: what it sets, and what may not be set otherwise beside it.
//!
//! It is a layer of values between the defaults and everything that a person sets. Where a person's
//! setting would open what it closes, the start is refused: a broker that is half secured looks like one
//! that is secured.

use std::path::{Path, PathBuf};

use crate::Settings;
use crate::listeners::SecurityProtocol;
use crate::load::problem_of;
use crate::problem::Problem;
use crate::values::Source;

/// The user that `--secure` makes.
pub const ADMIN_USER: &str = "admin";
/// The directory of what it makes, in the data directory.
pub const SECURE_DIR: &str = "secure";
/// The broker's certificate and key, in that directory.
pub const SERVER_FILE: &str = "server.pem";
/// The user's name and password, in that directory.
pub const USER_FILE: &str = "admin.user";
/// What requests to the admin endpoint bring, in that directory.
pub const TOKEN_FILE: &str = "admin.token";
/// The audit log, in the data directory.
pub const AUDIT_DIR: &str = "audit";

const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const LISTENERS: &str = "SASL_SSL://127.0.0.1:9092";

/// A value that `--secure` gives a setting.
pub(crate) struct Preset {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// No other value goes with `--secure`.
    pub(crate) fixed: bool,
}

/// The values of `--secure` with this data directory.
pub(crate) fn presets(data_dir: &str) -> Vec<Preset> {
    let in_secure = |name: &str| path_text(&Path::new(data_dir).join(SECURE_DIR).join(name));
    let fixed = |key, value: &str| Preset {
        key,
        value: value.to_owned(),
        fixed: true,
    };
    let usual = |key, value: &str| Preset {
        key,
        value: value.to_owned(),
        fixed: false,
    };
    vec![
        usual("listeners", LISTENERS),
        fixed("ssl.keystore.location", &in_secure(SERVER_FILE)),
        fixed("auth.users.file", &in_secure(USER_FILE)),
        fixed("admin.token.file", &in_secure(TOKEN_FILE)),
        fixed("authorizer.class.name", AUTHORIZER),
        fixed("allow.everyone.if.no.acl.found", "false"),
        fixed("auth.plain.without.tls", "false"),
        fixed(
            "sasl.enabled.mechanisms",
            "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        ),
        usual("super.users", &format!("User:{ADMIN_USER}")),
        usual(
            "audit.log.path",
            &path_text(&Path::new(data_dir).join(AUDIT_DIR)),
        ),
    ]
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The directory of `--secure` in a data directory.
pub fn secure_dir(data_dir: &Path) -> PathBuf {
    data_dir.join(SECURE_DIR)
}

/// A setting that a person made and that `--secure` makes itself.
pub(crate) fn conflict(key: &str, source: &Source) -> Problem {
    Problem {
        what: format!("{key} is set, and --secure sets it itself"),
        place: source.to_string(),
        value: None,
        mend: format!(
            "take one of the two out; `tidemark config docs` has the settings that --secure stands for, \
             {key} among them"
        ),
    }
}

/// What would be reached without credentials all the same.
pub(crate) fn check(settings: &Settings) -> Vec<Problem> {
    let values = &settings.values;
    let mut problems = Vec::new();
    for listener in &settings.listeners {
        if listener.protocol == SecurityProtocol::SaslSsl {
            continue;
        }
        let what = format!(
            "listener {} speaks {}, and with --secure every listener speaks SASL_SSL",
            listener.name, listener.protocol
        );
        let mend = format!(
            "write listeners=SASL_SSL://{}, or give --listen HOST:PORT",
            listener.bind
        );
        problems.push(problem_of(values, "listeners", what, mend));
    }
    let admin = format!("User:{ADMIN_USER}");
    let super_users = values.text("super.users").unwrap_or_default();
    if !super_users.split(';').any(|user| user.trim() == admin) {
        let what = format!("super.users leaves out {admin}, whom --secure makes");
        let mend = format!("add it: super.users={super_users};{admin}");
        problems.push(problem_of(values, "super.users", what, mend));
    }
    let is_local = |place: &str| {
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    };
    let remote = settings.admin_listen.as_deref();
    if remote.is_some_and(|place| place != "off" && !is_local(place)) {
        let what =
            "the admin endpoint speaks HTTP without TLS, and would be reached from other machines"
                .to_owned();
        let mend = "write admin.listen=127.0.0.1:9644, or off";
        problems.push(problem_of(values, "admin.listen", what, mend));
    }
    problems
}

/// Whether some listener lets in everybody who can connect.
pub fn is_open(settings: &Settings) -> bool {
    settings
        .listeners
        .iter()
        .any(|listener| match listener.protocol {
            SecurityProtocol::Plaintext => true,
            SecurityProtocol::Ssl => settings.ssl_client_auth != "required",
            _ => false,
        })
}
