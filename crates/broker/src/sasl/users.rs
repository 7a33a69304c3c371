//! The users that the first start makes (`auth.users`, `auth.users.file`), and whether anybody can get
//! in at all.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tidemark_audit::{Event, Kind, Outcome};
use tidemark_config::{ADMIN_USER, Secret, Settings, Source, users_of_file, users_of_text};
use tidemark_metadata::{ScramCredential, ScramUpsertion};
use tidemark_owner::{AlterScram, Command, Reply};
use tidemark_sasl::{Credential, Hash, scram};
use tracing::{info, warn};

use super::SaslListener;
use super::plain::fresh_salt;
use super::scram::kafkas;
use crate::admission::Wants;
use crate::clock::Entropy;
use crate::error::StartError;
use crate::shared::{ADMISSION_PATIENCE, Shared};

/// More than any list of users a person writes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the users that the settings name; those of the file win. Blocks.
pub(crate) fn read_first_users(
    settings: &Settings,
) -> Result<BTreeMap<String, Secret>, StartError> {
    let mut users = BTreeMap::new();
    if let Some(text) = &settings.auth_users {
        users.extend(users_of_text(text.expose()).map_err(StartError::Users)?);
    }
    if let Some(path) = &settings.auth_users_file {
        let path = Path::new(path);
        let unreadable = |source| StartError::io("read", path, source);
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if !found.is_file() || found.len() > MAX_FILE_BYTES {
            let what = format!("{} is no file of users", path.display());
            return Err(StartError::Users(what));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let named = users_of_file(&text)
            .map_err(|what| StartError::Users(format!("{}: {what}", path.display())))?;
        users.extend(named);
    }
    Ok(users)
}

/// Beside the file of the user that `--secure` makes: it was made.
const MADE_FILE: &str = "admin.made";

/// Makes these users if there are none; those of `--secure` that are missing. Returns when they are durable.
///
/// On data that was open before, anybody could make users. So the first start with `--secure` makes its
/// administrator whoever has the name, and notes that it did: later its password may be changed.
pub(crate) async fn first_users(
    mut users: BTreeMap<String, Secret>,
    shared: &Shared,
    entropy: std::sync::Arc<dyn Entropy>,
) -> Result<(), StartError> {
    if users.is_empty() {
        return Ok(());
    }
    // Without its administrator nobody could do anything with what --secure has closed.
    let of_secure = shared.settings.values.source("auth.users.file") == Source::Secure;
    let image = shared.read().image;
    let are_first = image.scram_users().len() == 0;
    let file = shared.settings.auth_users_file.as_deref().map(Path::new);
    let made_file = file
        .filter(|_| of_secure)
        .map(|file| file.with_file_name(MADE_FILE));
    let was_made = made_file.as_ref().is_none_or(|made| made.exists());
    if !are_first {
        let replaces = |user: &str| !was_made && user == ADMIN_USER;
        users.retain(|user, _| image.scram_user(user).is_none() || replaces(user));
        if of_secure {
            users.retain(|user, _| user == ADMIN_USER);
        }
        let missing: Vec<&str> = users.keys().map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if of_secure && image.scram_user(ADMIN_USER).is_some() {
            warn!(
                "the user {ADMIN_USER} was there already, and {MADE_FILE} beside {} is not: it may have been made by \
                 whoever could connect while this data was open. Its password is the one in that file now; an old \
                 one does not fit any more",
                file.unwrap_or(Path::new("the users' file")).display()
            );
        }
        if !of_secure {
            warn!(
                "not made, as there are users already: {missing:?}; auth.users is for the first start, \
                 kafka-configs makes more"
            );
            return Ok(());
        }
    }
    let names: Vec<String> = users.keys().cloned().collect();
    let derived = tokio::task::spawn_blocking(move || {
        let each = users.iter().flat_map(|(user, password)| {
            let entropy = entropy.clone();
            [Hash::Sha512, Hash::Sha256].map(move |hash| {
                let salt = fresh_salt(&*entropy);
                let password = password.expose();
                let made = Credential::of_password(hash, password, salt, scram::MIN_ITERATIONS);
                upsertion(user, hash, made)
            })
        });
        each.collect::<Vec<ScramUpsertion>>()
    });
    let stopped = |what: &str| StartError::Stopped(what.to_owned());
    let upsertions = derived
        .await
        .map_err(|e| StartError::Stopped(e.to_string()))?;
    // The first users of all are one record. Later a request may name a user once, as in Kafka.
    let steps = match are_first {
        true => vec![upsertions],
        false => upsertions.into_iter().map(|one| vec![one]).collect(),
    };
    for upsertions in steps {
        let command = Command::AlterScram(AlterScram {
            deletions: Vec::new(),
            upsertions,
            only_the_first: are_first,
        });
        let reply = shared
            .submit(command, Wants::Control, ADMISSION_PATIENCE)
            .await
            .map_err(|_| stopped("there is no room for the first users"))?;
        let Ok(Reply::AlterScram(made)) = reply.await else {
            return Err(stopped(
                "the journal stopped before the first users were durable",
            ));
        };
        for (user, made) in made {
            made.map_err(|(_, why)| StartError::Users(format!("user {user:?}: {why}")))?;
        }
    }
    if let Some(made_file) = made_file {
        let noted = tokio::task::spawn_blocking(move || note(&made_file));
        noted
            .await
            .map_err(|e| StartError::Stopped(e.to_string()))??;
    }
    info!("first users made: {names:?}");
    for name in names {
        shared.audit.record(|| {
            Event::new(Kind::Change)
                .outcome(Outcome::Succeeded)
                .by("the broker's settings")
                .resource("User", &name)
                .change("credentials made at the start")
        });
    }
    Ok(())
}

/// An empty file for its owner alone, durable. Blocks.
fn note(path: &Path) -> Result<(), StartError> {
    let unwritable = |source| StartError::io("write", path, source);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(unwritable)?;
    file.sync_all().map_err(unwritable)?;
    match path.parent() {
        Some(dir) => std::fs::File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(unwritable),
        None => Ok(()),
    }
}

/// What AlterUserScramCredentials would say of a credential that is made here.
pub(super) fn upsertion(user: &str, hash: Hash, made: Credential) -> ScramUpsertion {
    ScramUpsertion {
        user: user.to_owned(),
        mechanism: kafkas(hash).code().cast_signed(),
        credential: ScramCredential {
            iterations: made.iterations.cast_signed(),
            salt: made.salt,
            stored_key: made.stored_key,
            server_key: made.server_key,
        },
    }
}

/// Refuses a start after which nobody could do anything: every listener asks who is there, and there is
/// no user.
pub(crate) fn may_authenticate(
    settings: &Settings,
    listeners: &[Option<std::sync::Arc<SaslListener>>],
    shared: &Shared,
) -> Result<(), StartError> {
    let image = shared.read().image;
    let empty: Vec<&str> = (settings.listeners.iter().zip(listeners))
        .filter(|(_, sasl)| sasl.as_ref().is_some_and(|sasl| !sasl.has_users(&image)))
        .map(|(listener, _)| listener.name.as_str())
        .collect();
    if empty.is_empty() {
        return Ok(());
    }
    if empty.len() == settings.listeners.len() {
        return Err(StartError::NoUsers {
            listeners: empty.join(", "),
        });
    }
    warn!(
        "nobody can authenticate at {}: there are no users; make some at another listener with \
         kafka-configs --alter --add-config 'SCRAM-SHA-512=[password=...]' --entity-type users \
         --entity-name NAME",
        empty.join(", ")
    );
    Ok(())
}
