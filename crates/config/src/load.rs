//! Brings the sources together: finds each key's row, checks each value, and makes the settings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidemark_metadata::TopicDefaults;

use crate::authorizer;
use crate::file::{ConfigFile, FileKind};
use crate::kafka_keys::{KAFKA_KEYS, is_kafka_key};
use crate::listener_keys::{self, ListenerKey};
use crate::listeners::{ListenerTexts, parse_endpoint, resolve};
use crate::problem::{ConfigError, Problem};
use crate::row::Row;
use crate::rows::{Settings, Typed, all_names, ranked_row, row};
use crate::sasl;
use crate::secure;
use crate::security::{self, PassedOver};
use crate::suggest::nearest;
use crate::values::{SetValue, Source, Values};

/// What environment variables of settings begin with.
pub const ENV_PREFIX: &str = "TIDEMARK_";

/// Variables with the prefix that are no settings: the settings file's path, and whatever tests
/// and scripts tell each other.
const ENV_CONFIG: &str = "TIDEMARK_CONFIG";
/// The same as the flag: `true` or `false`.
const ENV_SECURE: &str = "TIDEMARK_SECURE";
const ENV_TEST_PREFIX: &str = "TIDEMARK_TEST_";

/// The texts that settings are read from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub file: Option<ConfigFile>,
    /// Environment variables; those without `TIDEMARK_` in front are passed over.
    pub env: Vec<(String, String)>,
    /// Flags without dashes in front, and their values: `listen`, or a setting's name with dashes
    /// for its dots.
    pub flags: Vec<(String, String)>,
    /// `--secure` was given: what it stands for is set, and nothing may be set that opens it.
    pub secure: bool,
}

/// The settings, and what a person should hear about how they came to be.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub settings: Settings,
    /// One line each: keys that were passed over, and what is allowed but unwise.
    pub notes: Vec<String>,
}

/// Brings all sources together. The error holds every problem found, not only the first.
pub fn load(inputs: &Inputs) -> Result<Loaded, ConfigError> {
    let mut gathered = Gathered {
        secure: inputs.secure,
        ..Gathered::default()
    };
    if let Some(file) = &inputs.file {
        gathered.file(file)?;
    }
    for (name, value) in &inputs.env {
        gathered.env(name, value);
    }
    for (name, value) in &inputs.flags {
        gathered.flag(name, value);
    }
    if inputs.secure {
        gathered.secure();
    }
    gathered.finish()
}

impl Default for Settings {
    /// The settings of a start without file, environment and flags.
    fn default() -> Settings {
        load(&Inputs::default())
            .expect("the defaults are valid, as a test shows")
            .settings
    }
}

/// `--listen HOST:PORT` as a value of `listeners`.
pub fn listen_flag(address: &str) -> Result<String, String> {
    let endpoint = parse_endpoint(address)?;
    Ok(format!("PLAINTEXT://{endpoint}"))
}

#[derive(Default)]
struct Gathered {
    secure: bool,
    /// By the row's name: the strongest value so far, and how strong the name it was set by is.
    set: BTreeMap<&'static str, (SetValue, usize)>,
    problems: Vec<Problem>,
    /// Keys of Kafka's that Tidemark has no use for.
    ignored: Vec<String>,
    /// Settings of single listeners, the weakest source first.
    of_listeners: Vec<ListenerKey>,
    /// The same as `ignored`, with where each was set.
    passed_over: Vec<PassedOver>,
    /// Keys that neither Kafka nor Tidemark knows, from a server.properties.
    unknown: Vec<String>,
}

impl Gathered {
    fn file(&mut self, file: &ConfigFile) -> Result<(), ConfigError> {
        for (key, value, line) in file.assignments()? {
            let source = Source::File {
                path: file.path.clone(),
                line,
            };
            if ranked_row(&key).is_some() {
                self.set(&key, &value, source);
            } else if let Some(found) = listener_keys::in_file(&key) {
                self.of_listener(key, found, &value, source);
            } else if is_kafka_key(&key) {
                self.ignore(&key, &value, &source);
            } else {
                self.unknown_in_file(&key, &value, file.kind, &source);
            }
        }
        Ok(())
    }

    fn env(&mut self, name: &str, value: &str) {
        let passed_over = !name.starts_with(ENV_PREFIX)
            || name == ENV_CONFIG
            || name == ENV_SECURE
            || name.starts_with(ENV_TEST_PREFIX);
        // Compose files pass on unset variables as empty ones.
        if passed_over || value.is_empty() {
            return;
        }
        let source = Source::Env {
            name: name.to_owned(),
        };
        if let Some(key) = all_names().find(|key| Row::env(key) == name) {
            self.set(key, value, source);
        } else if let Some(found) = listener_keys::elsewhere(&name[ENV_PREFIX.len()..]) {
            self.of_listener(name.to_owned(), found, value, source);
        } else if let Some(key) = KAFKA_KEYS.iter().find(|key| Row::env(key) == name) {
            self.ignore(key, value, &source);
        } else {
            let names: Vec<String> = all_names().map(Row::env).collect();
            let near = nearest(name, names.iter().map(String::as_str));
            self.problems.push(Problem {
                what: format!("{name} is no setting of Tidemark"),
                place: "the environment".to_owned(),
                value: None,
                mend: mend_unknown(near, "unset it"),
            });
        }
    }

    fn flag(&mut self, name: &str, value: &str) {
        let source = Source::Flag {
            name: name.to_owned(),
        };
        if name == "listen" {
            let listeners = listen_flag(value);
            let listeners = listeners.map(|listeners| match self.secure {
                true => listeners.replacen("PLAINTEXT://", "SASL_SSL://", 1),
                false => listeners,
            });
            match listeners {
                Ok(listeners) => self.set("listeners", &listeners, source),
                Err(why) => self.problems.push(Problem {
                    what: format!("no address to listen on: {why}"),
                    place: source.to_string(),
                    value: Some(value.to_owned()),
                    mend: "write HOST:PORT, for example --listen 127.0.0.1:9092".to_owned(),
                }),
            }
        } else if let Some(key) = all_names().find(|key| Row::flag(key) == name) {
            self.set(key, value, source);
        } else if let Some(found) = listener_keys::elsewhere(name) {
            self.of_listener(name.to_owned(), found, value, source);
        } else {
            let names: Vec<String> = all_names().map(Row::flag).collect();
            let near = nearest(name, names.iter().map(String::as_str));
            self.problems.push(Problem {
                what: format!("--{name} is no flag of Tidemark"),
                place: "the command line".to_owned(),
                value: None,
                mend: mend_unknown(near.map(|n| format!("--{n}")).as_deref(), "take it out"),
            });
        }
    }

    /// Keeps a value if nothing stronger is there: the source decides, then the name it was set
    /// by, then the order.
    fn set(&mut self, key: &str, value: &str, source: Source) {
        let Some((row, rank)) = ranked_row(key) else {
            return;
        };
        let text = match row.kind.check(row.check, value) {
            Ok(text) => text,
            Err(why) => {
                self.problems.push(Problem {
                    what: format!("{key} cannot have this value: {why}"),
                    place: source.to_string(),
                    value: (!row.sensitive).then(|| format!("\"{value}\"")),
                    mend: match &row.default {
                        Some(default) => format!(
                            "use {} ({}); the default is {default}",
                            row.kind.name(),
                            row.range()
                        ),
                        None => {
                            format!("use {} ({}), or leave it out", row.kind.name(), row.range())
                        }
                    },
                });
                return;
            }
        };
        if let Some((old, old_rank)) = self.set.get(row.name) {
            let old_wins = match old.source.strength().cmp(&source.strength()) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal => *old_rank < rank,
            };
            if old_wins {
                return;
            }
        }
        self.set.insert(row.name, (SetValue { text, source }, rank));
    }

    fn of_listener(
        &mut self,
        key: String,
        (listener, rest): (String, listener_keys::Rest),
        value: &str,
        source: Source,
    ) {
        self.of_listeners.push(ListenerKey {
            key,
            listener,
            rest,
            value: value.to_owned(),
            source,
        });
    }

    /// What `--secure` stands for, where nobody has set it.
    fn secure(&mut self) {
        let text = |name: &str| self.set.get(name).map(|(value, _)| value.text.clone());
        let default = || row("log.dirs").and_then(|row| row.default.as_deref());
        let data_dir = text("log.dirs").unwrap_or_else(|| default().unwrap_or_default().to_owned());
        for preset in secure::presets(&data_dir) {
            match self.set.get(preset.key) {
                None => self.set(preset.key, &preset.value, Source::Secure),
                Some((set, _)) if preset.fixed && set.text != preset.value => {
                    let problem = secure::conflict(preset.key, &set.source);
                    self.problems.push(problem);
                }
                Some(_) => {}
            }
        }
    }

    fn ignore(&mut self, key: &str, value: &str, source: &Source) {
        self.pass_over(key, value, source);
        if !self.ignored.iter().any(|ignored| ignored == key) {
            self.ignored.push(key.to_owned());
        }
    }

    fn pass_over(&mut self, key: &str, value: &str, source: &Source) {
        self.passed_over.push(PassedOver {
            key: key.to_owned(),
            value: value.to_owned(),
            source: source.clone(),
        });
    }

    fn unknown_in_file(&mut self, key: &str, value: &str, kind: FileKind, source: &Source) {
        let candidates: Vec<&str> = match kind {
            FileKind::Toml => all_names().chain(KAFKA_KEYS.iter().copied()).collect(),
            // Plugins of Kafka's have keys of any name, so Kafka passes over what it does not
            // know. Only what is nearly a key of Tidemark's own was surely meant for Tidemark.
            FileKind::Properties => all_names().filter(|name| !is_kafka_key(name)).collect(),
        };
        let near = nearest(key, candidates);
        if kind == FileKind::Properties && near.is_none() {
            self.pass_over(key, value, source);
            self.unknown.push(key.to_owned());
            return;
        }
        self.problems.push(Problem {
            what: format!("{key} is no setting"),
            place: source.to_string(),
            value: None,
            mend: mend_unknown(near, "take it out"),
        });
    }

    fn finish(mut self) -> Result<Loaded, ConfigError> {
        let values = Values {
            set: std::mem::take(&mut self.set)
                .into_iter()
                .map(|(name, (value, _))| (name, value))
                .collect(),
        };
        let typed = Typed::from_texts(|name| values.text(name)).map_err(|name| {
            let what = format!("{name} cannot have this value");
            problem_of(&values, name, what, "use a smaller number")
        });
        let parts = Parts::derive(&values, &self.of_listeners);
        let (typed, parts) = match (typed, parts) {
            (Ok(typed), Ok(parts)) if self.problems.is_empty() => (typed, parts),
            (typed, parts) => {
                self.problems.extend(typed.err());
                self.problems.extend(parts.err().into_iter().flatten());
                return Err(ConfigError {
                    problems: self.problems,
                });
            }
        };
        let settings = typed.into_settings(
            parts.listeners,
            parts.data_dir,
            parts.authorizer,
            parts.topic_defaults,
            values,
        );
        let mut problems = check_together(&settings);
        problems.extend(security::check(&settings, &self.passed_over));
        problems.extend(sasl::check(&settings));
        if self.secure {
            problems.extend(secure::check(&settings));
        }
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        let mut notes = Vec::new();
        if !self.ignored.is_empty() {
            notes.push(format!(
                "ignored, no use for them here: {}",
                self.ignored.join(", ")
            ));
        }
        if !self.unknown.is_empty() {
            notes.push(format!(
                "ignored, neither Kafka's nor Tidemark's: {}",
                self.unknown.join(", ")
            ));
        }
        notes.extend(unwise(&settings));
        Ok(Loaded { settings, notes })
    }
}

fn mend_unknown(near: Option<&str>, otherwise: &str) -> String {
    match near {
        Some(near) => format!("did you mean {near}?"),
        None => format!("{otherwise}; `tidemark config explain` lists every setting"),
    }
}

/// A problem with the value in force of a setting.
pub(crate) fn problem_of(
    values: &Values,
    name: &str,
    what: String,
    mend: impl Into<String>,
) -> Problem {
    Problem {
        what,
        place: values.source(name).to_string(),
        value: values
            .text(name)
            .filter(|_| row(name).is_some_and(|row| !row.sensitive))
            .map(|text| format!("{name}={text}")),
        mend: mend.into(),
    }
}

/// What is made from several settings.
struct Parts {
    listeners: Vec<crate::listeners::Listener>,
    data_dir: PathBuf,
    authorizer: Option<tidemark_authorizer::Rules>,
    topic_defaults: TopicDefaults,
}

impl Parts {
    fn derive(values: &Values, of_listeners: &[ListenerKey]) -> Result<Parts, Vec<Problem>> {
        let text = |name| values.text(name).unwrap_or_default();
        let mut problems = Vec::new();

        let roles = text("process.roles");
        if !roles.is_empty() && !roles.split(',').any(|role| role == "broker") {
            problems.push(problem_of(
                values,
                "process.roles",
                "these are the settings of a controller, and Tidemark has none".to_owned(),
                "start with the settings of a broker: process.roles=broker",
            ));
        }
        let listeners = resolve(&ListenerTexts {
            listeners: text("listeners"),
            advertised: text("advertised.listeners"),
            protocol_map: text("listener.security.protocol.map"),
            controller_names: text("controller.listener.names"),
        })
        .map_err(|error| problems.push(problem_of(values, error.key, error.what, error.mend)))
        .and_then(|mut listeners| {
            let given = sasl::resolve(values, of_listeners, &mut listeners);
            given.map_err(|found| problems.extend(found))?;
            Ok(listeners)
        });

        let dirs = text("log.dirs");
        if let Some((first, _)) = dirs.split_once(',') {
            problems.push(problem_of(
                values,
                "log.dirs",
                "there is more than one data directory, and Tidemark keeps its data in one"
                    .to_owned(),
                format!("name one: log.dirs={first}"),
            ));
        }
        let topic_defaults = TopicDefaults::new(|key| values.set_text(key).map(str::to_owned))
            .map_err(|(key, _, why)| {
                let what = format!("{key} cannot have this value: {why}");
                problems.push(problem_of(values, key, what, "use another value"));
            });
        let authorizer = authorizer::rules(values).map_err(|found| problems.extend(found));
        match (listeners, authorizer, topic_defaults) {
            (Ok(listeners), Ok(authorizer), Ok(topic_defaults)) if problems.is_empty() => {
                Ok(Parts {
                    listeners,
                    data_dir: PathBuf::from(dirs),
                    authorizer,
                    topic_defaults,
                })
            }
            _ => Err(problems),
        }
    }
}

/// What must hold between settings.
fn check_together(settings: &Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    // Told at the place of whichever of the two was set.
    let mut require = |holds: bool, [name, other]: [&'static str; 2], why: &str, mend: &str| {
        if !holds {
            let values = &settings.values;
            let told = match values.set_text(name) {
                None if values.set_text(other).is_some() => other,
                _ => name,
            };
            let text = |name| values.text(name).unwrap_or_default();
            let what = format!("{name} ({}) {why} {other} ({})", text(name), text(other));
            problems.push(problem_of(values, told, what, mend));
        }
    };
    require(
        settings.group_min_session_timeout_ms <= settings.group_max_session_timeout_ms,
        [
            "group.min.session.timeout.ms",
            "group.max.session.timeout.ms",
        ],
        "is above",
        "raise the maximum or lower the minimum",
    );
    require(
        settings.journal_budget_bytes / 2 >= settings.journal_slot_bytes,
        ["journal.budget.bytes", "journal.slot.bytes"],
        "is less than twice",
        "raise journal.budget.bytes or lower journal.slot.bytes",
    );
    // Frame headers and the batches that a record adds of its own, and what the owner keeps for the end of
    // a transaction that a batch begins: twice the longest name.
    const RECORD_OVERHEAD_BYTES: u64 = 131_072;
    let largest = settings.topic_defaults.config().max_message_bytes;
    require(
        u64::from(largest.unsigned_abs()) + RECORD_OVERHEAD_BYTES <= settings.journal_slot_bytes,
        ["message.max.bytes", "journal.slot.bytes"],
        "does not fit into one journal file:",
        "lower message.max.bytes or raise journal.slot.bytes",
    );
    problems
}

/// What is allowed and may surprise.
fn unwise(settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.data_dir.starts_with("/tmp") {
        notes.push(format!(
            "the data directory {} is in /tmp, which many systems empty when they start",
            settings.data_dir.display()
        ));
    }
    notes.extend(authorizer::unwise(
        settings.authorizer.as_ref(),
        &settings.values,
    ));
    notes
}
