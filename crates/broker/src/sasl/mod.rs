//! Authentication by SASL, on listeners whose protocol says so.
//!
//! [`stage`] is what a connection passes before it may ask anything, and again when its session is to
//! be renewed; [`mechanism`] is what it asks for an opinion; [`plain`], [`scram`] and [`oauth`] are those.
//! Users are in the metadata image (`tidemark_metadata`, AlterUserScramCredentials): each
//! authentication looks at the image of that moment. [`users`] makes the first of them.

mod mechanism;
pub(crate) mod oauth;
mod plain;
mod scram;
pub(crate) mod stage;
mod users;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidemark_config::{Listener, SaslMechanism, Settings};
use tidemark_metadata::MetadataImage;
use tidemark_sasl::Hash;
use tidemark_types::MonoTime;

use crate::clock::Entropy;
use crate::error::StartError;
use mechanism::Mechanism;
use oauth::{Issuer, OauthBearer};
use plain::{Passwords, Plain};
use scram::Scram;

pub(crate) use stage::{Gate, Taken};
pub(crate) use users::{first_users, may_authenticate, read_first_users};

/// What all listeners with SASL share.
pub(crate) struct Kit {
    entropy: Arc<dyn Entropy>,
    passwords: Arc<Passwords>,
    /// If a listener speaks OAUTHBEARER.
    issuer: Option<Arc<Issuer>>,
}

/// How the clients of one listener authenticate.
pub struct SaslListener {
    /// In the order they are told, with the longest session each.
    mechanisms: Vec<Offered>,
}

struct Offered {
    mechanism: Box<dyn Mechanism>,
    /// `None`: a session has no end.
    max_session: Option<Duration>,
}

impl fmt::Debug for SaslListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.mechanisms.iter().map(|o| o.mechanism.name());
        f.debug_list().entries(names).finish()
    }
}

impl Kit {
    /// Blocks: the keys that tokens are checked with may be in a file.
    pub(crate) fn new(
        settings: &Settings,
        entropy: Arc<dyn Entropy>,
        now: MonoTime,
    ) -> Result<Kit, StartError> {
        let tokens = |listener: &Listener| {
            let sasl = listener.sasl.as_ref();
            sasl.is_some_and(|s| {
                s.mechanisms
                    .iter()
                    .any(|(m, _)| *m == SaslMechanism::OauthBearer)
            })
        };
        let issuer = match settings.listeners.iter().any(tokens) {
            true => Some(Arc::new(Issuer::open(settings, now)?)),
            false => None,
        };
        Ok(Kit {
            entropy,
            passwords: Arc::new(Passwords::new()),
            issuer,
        })
    }

    pub(crate) fn issuer(&self) -> Option<Arc<Issuer>> {
        self.issuer.clone()
    }

    /// `None` for a listener without SASL. Blocks: passwords of the settings are derived from.
    pub(crate) fn listener(&self, listener: &Listener) -> Option<Arc<SaslListener>> {
        let sasl = listener.sasl.as_ref()?;
        let offered = sasl.mechanisms.iter().map(|(mechanism, session_ms)| {
            let mechanism: Box<dyn Mechanism> = match mechanism {
                SaslMechanism::Plain => Box::new(Plain::new(
                    &sasl.plain_users,
                    self.passwords.clone(),
                    &*self.entropy,
                )),
                SaslMechanism::ScramSha256 => Box::new(self.scram(Hash::Sha256)),
                SaslMechanism::ScramSha512 => Box::new(self.scram(Hash::Sha512)),
                SaslMechanism::OauthBearer => Box::new(OauthBearer(
                    self.issuer
                        .clone()
                        .expect("made where a listener speaks OAUTHBEARER"),
                )),
            };
            let session = Some(*session_ms).filter(|ms| *ms > 0);
            Offered {
                mechanism,
                max_session: session.map(Duration::from_millis),
            }
        });
        Some(Arc::new(SaslListener {
            mechanisms: offered.collect(),
        }))
    }

    /// Of every listener of the settings, in their order. Blocks.
    pub(crate) fn listeners(&self, settings: &Settings) -> Vec<Option<Arc<SaslListener>>> {
        let listeners = settings.listeners.iter();
        listeners.map(|listener| self.listener(listener)).collect()
    }

    fn scram(&self, hash: Hash) -> Scram {
        Scram::new(hash, self.entropy.clone())
    }
}

impl SaslListener {
    /// True if anybody could get in as things are.
    pub(crate) fn has_users(&self, image: &MetadataImage) -> bool {
        let mut offered = self.mechanisms.iter();
        offered.any(|offered| offered.mechanism.has_users(image))
    }
}
