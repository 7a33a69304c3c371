//! `tidemark serve --secure`: makes what is missing of a CA, a certificate, a user and a token, before the
//! broker starts, and what clients need, once it has.
//!
//! Everything is in `<data dir>/secure`, for its owner alone. A second start finds it there.

mod certificates;
mod clients;
mod files;

use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};

use tidemark_config::{
    ADMIN_USER, SECURE_DIR, SERVER_FILE, Secret, Settings, TOKEN_FILE, USER_FILE, is_open,
    secure_dir,
};

use files::{make_dir, read, write_new};

const CA_FILE: &str = "ca.pem";
const CA_KEY_FILE: &str = "ca.key";
/// A CA with less than this left is told of: a new one has to be given to every client.
const CA_WARN_DAYS: i64 = 180;

/// What `--secure` made or found.
pub(crate) struct Secure {
    dir: PathBuf,
    password: Secret,
}

/// A broker that serves everybody, or lets everybody do everything, must not be started on data that was
/// secured by a forgotten flag.
pub(crate) fn refuse_to_open(settings: &Settings) -> Result<(), String> {
    let dir = secure_dir(&settings.data_dir);
    if !dir.join(USER_FILE).exists() {
        return Ok(());
    }
    // Without an authorizer whoever logs in may do everything, whatever the ACLs say.
    let (what, otherwise) = match (is_open(settings), settings.authorizer.is_some()) {
        (false, true) => return Ok(()),
        (true, _) => (
            "would open it to everyone who can connect",
            "with listeners that speak SASL_SSL and authorizer.class.name",
        ),
        (false, false) => (
            "would let everyone who logs in do everything, as no authorizer.class.name is set",
            "with authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and \
             super.users",
        ),
    };
    Err(format!(
        "{} was secured, and this start {what}; start it with --secure, or {otherwise}; to open it for \
         good, remove {}",
        settings.data_dir.display(),
        dir.display()
    ))
}

/// Makes what is missing; `say` gets a line for each thing that was made or changed. Blocks.
///
/// Errors: why not, and what to do.
pub(crate) fn prepare(settings: &Settings, say: &mut dyn FnMut(String)) -> Result<Secure, String> {
    let data_dir = absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
    let dir = data_dir.join(SECURE_DIR);
    let had_data = data_dir.join("identity").exists();
    let is_new = make_dir(&dir)?;
    if is_new && had_data {
        say(format!(
            "{} was served without --secure before: its topics and groups stay; from now on only clients \
             that log in are let in, and only User:{ADMIN_USER} may touch them until ACLs allow it to \
             others (kafka-acls.sh)",
            data_dir.display()
        ));
    }
    // First, so that a start that was cut short can be told from a file that was lost.
    let password = user(&dir, say)?;
    authority(&dir, say)?;
    renew(settings, &dir, say)?;
    token(&dir)?;
    Ok(Secure { dir, password })
}

/// The CA: kept for ever, as clients keep it. Its key may be taken elsewhere.
fn authority(dir: &Path, say: &mut dyn FnMut(String)) -> Result<(), String> {
    let (certificate, key) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
    if let Some(certificate) = read(&certificate)? {
        let left = certificates::ca_days_left(certificate.expose());
        match left {
            None => {
                return Err(format!(
                    "{} is no certificate; restore it, or remove it and {} for a new CA",
                    dir.join(CA_FILE).display(),
                    key.display()
                ));
            }
            Some(left) if left < CA_WARN_DAYS => say(format!(
                "the CA {} ends in {left} days: remove it and {} for a new one at the next start, and give \
                 the new {CA_FILE} to the clients",
                dir.join(CA_FILE).display(),
                key.display()
            )),
            Some(_) => {}
        }
        return Ok(());
    }
    let made = match read(&key)? {
        // A start was cut short between the two.
        Some(key) => certificates::ca_of(key.expose()),
        None => certificates::new_ca(),
    };
    let (key_text, certificate_text) = made.map_err(|e| format!("no CA can be made: {e}"))?;
    write_new(&key, &key_text)?;
    write_new(&certificate, &certificate_text)?;
    say(format!("a CA was made: {}", certificate.display()));
    Ok(())
}

/// Makes the broker's certificate if there is none that is good for long enough and for every name.
fn renew(settings: &Settings, dir: &Path, say: &mut dyn FnMut(String)) -> Result<(), String> {
    let path = dir.join(SERVER_FILE);
    let names = certificates::names(&hosts(settings));
    let ca = read(&dir.join(CA_FILE))?.ok_or("the CA's certificate is gone")?;
    let there = read(&path)?;
    let why = match &there {
        None => None,
        Some(server) => {
            let Some(why) = certificates::why_renew(server.expose(), ca.expose(), &names) else {
                return Ok(());
            };
            Some(why)
        }
    };
    let key_path = dir.join(CA_KEY_FILE);
    let Some(key) = read(&key_path)? else {
        let why = why.unwrap_or_else(|| "it is missing".to_owned());
        return Err(format!(
            "the certificate {} has to be made anew ({why}), and the CA's key {} is not here to sign it; \
             put it back for this start, or remove {} for a new CA",
            path.display(),
            key_path.display(),
            dir.join(CA_FILE).display()
        ));
    };
    let made = certificates::new_server(key.expose(), &names)
        .map_err(|e| format!("no certificate can be made: {e}"))?;
    write_new(&path, &made)?;
    let of = names.join(", ");
    say(match why {
        None => format!("a certificate was made for {of}: {}", path.display()),
        Some(why) => format!(
            "the certificate {} was made anew for {of}: {why}",
            path.display()
        ),
    });
    Ok(())
}

/// Makes the certificate anew when its end comes near while the broker runs. What fails is tried again
/// another day, and the log tells of the end.
pub(crate) fn look_after(settings: &Settings) {
    let data_dir = absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
    let dir = data_dir.join(SECURE_DIR);
    if let Err(why) = renew(settings, &dir, &mut |line| tracing::info!("{line}")) {
        tracing::warn!("{why}");
    }
}

/// The hosts by which clients may come.
fn hosts(settings: &Settings) -> Vec<String> {
    let mut hosts = Vec::new();
    if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        hosts.push(name.trim().to_owned());
    }
    for listener in &settings.listeners {
        hosts.push(listener.bind.host.clone());
        hosts.extend(listener.advertised.iter().map(|told| told.host.clone()));
    }
    hosts
}

/// The user: its name and password are in one file, which the broker reads when it has no users yet.
fn user(dir: &Path, say: &mut dyn FnMut(String)) -> Result<Secret, String> {
    let path = dir.join(USER_FILE);
    let text = match read(&path)? {
        Some(text) => text,
        None if dir.join(CA_FILE).exists() => {
            return Err(format!(
                "{} is missing; restore it, or write {ADMIN_USER}:PASSWORD into it, for the lines that \
                 clients connect with",
                path.display()
            ));
        }
        None => {
            let text = Secret::new(format!("{ADMIN_USER}:{}\n", files::random_text()?.expose()));
            write_new(&path, text.expose())?;
            say(format!(
                "the user {ADMIN_USER} was made, with a random password: {}",
                path.display()
            ));
            text
        }
    };
    let password = text.expose().lines().find_map(|line| {
        let (name, password) = line.split_once(':')?;
        (name == ADMIN_USER).then(|| Secret::new(password))
    });
    password.ok_or_else(|| {
        format!(
            "{} has no line {ADMIN_USER}:PASSWORD; restore it",
            path.display()
        )
    })
}

fn token(dir: &Path) -> Result<(), String> {
    let path = dir.join(TOKEN_FILE);
    if read(&path)?.is_none() {
        write_new(&path, &format!("{}\n", files::random_text()?.expose()))?;
    }
    Ok(())
}

impl Secure {
    /// Writes the files that clients start with, for a broker that is dialled at `dial`, and says how they
    /// are used: a word for each line, and the line.
    pub(crate) fn clients(
        &self,
        dial: &str,
        admin: Option<SocketAddr>,
    ) -> Result<Vec<(&'static str, String)>, String> {
        clients::write(&self.dir, dial, &self.password)?;
        Ok(clients::lines(&self.dir, dial, admin))
    }
}
