//! Every setting: one row each, read from flags, environment, TOML and server.properties.
//!
//! [`load`] is pure: it takes the texts of its sources and gives the [`Settings`] or every
//! [`Problem`] found. Defaults < file < environment < flags.

mod authorizer;
mod describe;
mod document;
mod file;
mod jaas;
mod kafka_keys;
mod listener_keys;
mod listeners;
mod load;
mod problem;
mod properties;
mod row;
mod rows;
mod sasl;
mod secret;
mod secure;
mod security;
mod suggest;
mod toml_file;
mod typed;
mod values;

pub use document::toml_document;
pub use file::{ConfigFile, FileKind};
pub use listeners::{Endpoint, Listener, SecurityProtocol};
pub use load::{ENV_PREFIX, Inputs, Loaded, listen_flag, load};
pub use problem::{ConfigError, Problem};
pub use row::{Row, Section};
pub use rows::{Settings, row, rows};
pub use sasl::{ListenerSasl, SaslMechanism, users_of_file, users_of_text};
pub use secret::Secret;
pub use secure::{
    ADMIN_USER, AUDIT_DIR, SECURE_DIR, SERVER_FILE, TOKEN_FILE, USER_FILE, is_open, secure_dir,
};
pub use tidemark_metadata::{Check, Kind};
pub use typed::{ExclusiveOperations, JournalSync, TransactionLease, TransactionalIdOwner};
pub use values::{Source, Values};
