//! PLAIN: a password, compared with what is kept of the user's: a credential of SCRAM, or what was
//! derived at the start from a password of the listener's own settings.
//!
//! A comparison takes a millisecond and more of a core, so it happens off the runtime and few at a
//! time: a flood of logins costs those few cores and no more. A user that does not exist costs the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemark_config::Secret;
use tidemark_metadata::{MetadataImage, ScramMechanism};
use tidemark_sasl::{Credential, Hash, Refusal, fake, plain, scram};
use tokio::sync::Semaphore;

use super::mechanism::{Done, Exchange, Failed, Mechanism, Step, Stepping};
use super::scram::{credential, of_image};
use crate::clock::Entropy;
use crate::shared::Shared;

/// Passwords that are derived from at the same time, over all listeners.
const AT_ONCE: usize = 2;

/// Takes turns in what is slow by intent.
pub(super) struct Passwords {
    turns: Arc<Semaphore>,
}

impl Passwords {
    pub(super) fn new() -> Passwords {
        Passwords {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// True if the password is the credential's.
    async fn fits(&self, hash: Hash, credential: Credential, password: Secret) -> bool {
        let Ok(turn) = self.turns.clone().acquire_owned().await else {
            return false;
        };
        let derived = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            credential.is_of(hash, password.expose())
        });
        derived.await.unwrap_or(false)
    }
}

pub(super) struct Plain {
    shared: Arc<Known>,
}

/// What every exchange looks at.
struct Known {
    /// Users of this listener's own settings.
    users: BTreeMap<String, Credential>,
    passwords: Arc<Passwords>,
}

/// What passwords of the settings are derived with.
const OWN: Hash = Hash::Sha256;

impl Plain {
    /// Blocks: a millisecond per user.
    pub(super) fn new(
        users: &BTreeMap<String, Secret>,
        passwords: Arc<Passwords>,
        entropy: &dyn Entropy,
    ) -> Plain {
        let derive = |(user, password): (&String, &Secret)| {
            let salt = entropy.uuid().to_vec();
            let credential =
                Credential::of_password(OWN, password.expose(), salt, scram::MIN_ITERATIONS);
            (user.clone(), credential)
        };
        let users = users.iter().map(derive).collect();
        Plain {
            shared: Arc::new(Known { users, passwords }),
        }
    }
}

impl Mechanism for Plain {
    fn name(&self) -> &'static str {
        "PLAIN"
    }

    fn begin(&self) -> Box<dyn Exchange> {
        Box::new(PlainExchange {
            known: self.shared.clone(),
            claims: None,
        })
    }

    fn has_users(&self, image: &MetadataImage) -> bool {
        !self.shared.users.is_empty() || image.scram_users().len() > 0
    }
}

impl Known {
    /// The user's, with the hash it is for; for nobody one that no password fits.
    fn credential(&self, image: &MetadataImage, user: &str) -> (Hash, Credential) {
        if let Some(own) = self.users.get(user) {
            return (OWN, own.clone());
        }
        let only_512 = image.scram_user(user).and_then(|credentials| {
            let other = credentials.get(&ScramMechanism::Sha512)?;
            (!credentials.contains_key(&ScramMechanism::Sha256)).then(|| of_image(other))
        });
        match only_512 {
            Some(credential) => (Hash::Sha512, credential),
            None => (Hash::Sha256, credential(image, Hash::Sha256, user)),
        }
    }
}

struct PlainExchange {
    known: Arc<Known>,
    claims: Option<String>,
}

impl Exchange for PlainExchange {
    fn claims(&self) -> Option<&str> {
        self.claims.as_deref()
    }

    fn step<'a>(&'a mut self, token: &'a [u8], shared: &'a Arc<Shared>) -> Stepping<'a> {
        Box::pin(async move {
            let claim = match plain::parse(token) {
                Ok(claim) => claim,
                Err(refusal) => return Step::Failed(refusal.into()),
            };
            self.claims = Some(claim.user.to_owned());
            let (hash, credential) = self.known.credential(&shared.read().image, claim.user);
            let password = Secret::new(claim.password);
            if !self.known.passwords.fits(hash, credential, password).await {
                return Step::Failed(Failed {
                    told: Some(plain::WRONG.to_owned()),
                    why: Refusal::Credentials.why().to_owned(),
                });
            }
            if claim.other_identity {
                return Step::Failed(Refusal::OtherIdentity.into());
            }
            Step::Done(Done {
                user: claim.user.to_owned(),
                token: Vec::new(),
                expires_at_ms: None,
            })
        })
    }
}

/// A salt for a user that is made here: as Kafka's tools make them.
pub(super) fn fresh_salt(entropy: &dyn Entropy) -> Vec<u8> {
    let (first, second) = (entropy.uuid(), entropy.uuid());
    let mut random = [0; 17];
    random[..9].copy_from_slice(&first[..9]);
    random[9..].copy_from_slice(&second[..8]);
    fake::salt(&random)
}
