//! SCRAM-SHA-256 and -512: users by the image of the moment, nonces from the broker's entropy.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemark_metadata::{MetadataImage, ScramCredential, ScramMechanism};
use tidemark_sasl::fake::{self, Shape};
use tidemark_sasl::scram::{AwaitFinal, ClientFirst, NONCE_BYTES};
use tidemark_sasl::{Credential, Hash, Refusal};

use super::mechanism::{Done, Exchange, Mechanism, Step, Stepping};
use crate::clock::Entropy;
use crate::shared::Shared;

pub(super) struct Scram {
    hash: Hash,
    entropy: Arc<dyn Entropy>,
}

impl Scram {
    pub(super) fn new(hash: Hash, entropy: Arc<dyn Entropy>) -> Scram {
        Scram { hash, entropy }
    }
}

impl Mechanism for Scram {
    fn name(&self) -> &'static str {
        self.hash.mechanism()
    }

    fn begin(&self) -> Box<dyn Exchange> {
        let mut nonce = [0; NONCE_BYTES];
        for part in nonce.chunks_mut(12) {
            part.copy_from_slice(&self.entropy.uuid()[..12]);
        }
        Box::new(ScramExchange {
            hash: self.hash,
            nonce,
            waiting: None,
            claims: None,
        })
    }

    fn has_users(&self, image: &MetadataImage) -> bool {
        let mechanism = kafkas(self.hash);
        let mut users = image.scram_users();
        users.any(|(_, credentials)| credentials.contains_key(&mechanism))
    }
}

struct ScramExchange {
    hash: Hash,
    nonce: [u8; NONCE_BYTES],
    /// Who the client says it is, once it has said so.
    waiting: Option<(String, AwaitFinal)>,
    claims: Option<String>,
}

impl ScramExchange {
    fn next(&mut self, token: &[u8], shared: &Shared) -> Result<Step, Refusal> {
        match self.waiting.take() {
            None => {
                let first = ClientFirst::parse(token)?;
                let credential = credential(&shared.read().image, self.hash, first.user());
                let user = first.user().to_owned();
                let (answer, waiting) = first.answer(self.hash, credential, &self.nonce);
                self.claims = Some(user.clone());
                self.waiting = Some((user, waiting));
                Ok(Step::Challenge(answer))
            }
            Some((user, waiting)) => Ok(Step::Done(Done {
                token: waiting.finish(token)?,
                user,
                expires_at_ms: None,
            })),
        }
    }
}

impl Exchange for ScramExchange {
    fn claims(&self) -> Option<&str> {
        self.claims.as_deref()
    }

    fn step<'a>(&'a mut self, token: &'a [u8], shared: &'a Arc<Shared>) -> Stepping<'a> {
        let step = self.next(token, shared);
        Box::pin(std::future::ready(
            step.unwrap_or_else(|refusal| Step::Failed(refusal.into())),
        ))
    }
}

/// The user's credential, or one that looks like it and that no password fits. The second is made in
/// both cases, so that there is nothing to be measured.
pub(super) fn credential(image: &MetadataImage, hash: Hash, user: &str) -> Credential {
    let mechanism = kafkas(hash);
    let secret = secret(image);
    let fake = fake::credential(&secret, hash, user, usual_shape(image, mechanism));
    match image.scram_credential(user, mechanism) {
        Some(real) => of_image(real),
        None => fake,
    }
}

pub(super) fn of_image(credential: &ScramCredential) -> Credential {
    Credential {
        salt: credential.salt.clone(),
        // Checked when it was set.
        iterations: credential.iterations.unsigned_abs(),
        stored_key: credential.stored_key.clone(),
        server_key: credential.server_key.clone(),
    }
}

pub(super) fn kafkas(hash: Hash) -> ScramMechanism {
    match hash {
        Hash::Sha256 => ScramMechanism::Sha256,
        Hash::Sha512 => ScramMechanism::Sha512,
    }
}

/// Drawn when the data directory was made, told to nobody, and the same after each start.
fn secret(image: &MetadataImage) -> Vec<u8> {
    let mut secret = image.incarnation().to_be_bytes().to_vec();
    secret.extend(image.cluster_id().map_or(&b""[..], |id| id.as_bytes()));
    secret
}

/// How most credentials look, so that one that is none looks so too.
fn usual_shape(image: &MetadataImage, mechanism: ScramMechanism) -> Shape {
    let mut shapes: BTreeMap<Shape, usize> = BTreeMap::new();
    for (_, credentials) in image.scram_users() {
        if let Some(found) = credentials.get(&mechanism) {
            let shape = Shape::of(&found.salt, found.iterations.unsigned_abs());
            *shapes.entry(shape).or_default() += 1;
        }
    }
    let usual = shapes.into_iter().max_by_key(|(_, count)| *count);
    usual.map_or_else(Shape::default, |(shape, _)| shape)
}
