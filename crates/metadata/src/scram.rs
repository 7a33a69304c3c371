//! Users and what they authenticate with: SCRAM credentials (AlterUserScramCredentials, KIP-554).
//!
//! A credential is derived from a password and tells it to nobody; still it is shown nowhere, because
//! passwords can be guessed from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidemark_types::ErrorCode;

use crate::Refusal;
use crate::image::MetadataImage;
use crate::record::{MetadataRecord, SECURITY_LEVEL};

/// Longer names are refused; Kafka has no limit but the record's.
pub const MAX_USER_BYTES: usize = 255;
/// Longer salts are refused; clients make them of 25 to 64 bytes.
pub const MAX_SALT_BYTES: usize = 255;
/// Kafka's bounds.
const ITERATIONS: std::ops::RangeInclusive<i32> = 4096..=16_384;

/// Which hash function, with Kafka's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScramMechanism {
    Sha256 = 1,
    Sha512 = 2,
}

impl ScramMechanism {
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub const fn from_code(code: u8) -> Option<ScramMechanism> {
        match code {
            1 => Some(ScramMechanism::Sha256),
            2 => Some(ScramMechanism::Sha512),
            _ => None,
        }
    }
}

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    pub iterations: i32,
    pub salt: Vec<u8>,
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Every user, with one or two credentials each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users(BTreeMap<String, BTreeMap<ScramMechanism, ScramCredential>>);

impl Users {
    pub(crate) fn set(&mut self, user: &str, mechanism: ScramMechanism, to: &ScramCredential) {
        let of_user = self.0.entry(user.to_owned()).or_default();
        of_user.insert(mechanism, to.clone());
    }

    pub(crate) fn remove(&mut self, user: &str, mechanism: ScramMechanism) {
        if let Some(of_user) = self.0.get_mut(user) {
            of_user.remove(&mechanism);
            if of_user.is_empty() {
                self.0.remove(user);
            }
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, ScramMechanism, &ScramCredential)> {
        self.0.iter().flat_map(|(user, of_user)| {
            of_user
                .iter()
                .map(move |(mechanism, credential)| (user.as_str(), *mechanism, credential))
        })
    }
}

/// A credential to take away.
#[derive(Clone, Debug)]
pub struct ScramDeletion {
    pub user: String,
    /// As it was asked for: it may be none.
    pub mechanism: i8,
}

/// A credential to set.
#[derive(Clone, Debug)]
pub struct ScramUpsertion {
    pub user: String,
    /// As it was asked for: it may be none.
    pub mechanism: i8,
    pub credential: ScramCredential,
}

/// What is decided of one user.
pub type ScramDecided = (String, Result<MetadataRecord, Refusal>);

impl MetadataImage {
    /// What a user authenticates with by a mechanism.
    pub fn scram_credential(
        &self,
        user: &str,
        mechanism: ScramMechanism,
    ) -> Option<&ScramCredential> {
        self.users.0.get(user)?.get(&mechanism)
    }

    /// Every user and its credentials, by name.
    pub fn scram_users(
        &self,
    ) -> impl ExactSizeIterator<Item = (&String, &BTreeMap<ScramMechanism, ScramCredential>)> {
        self.users.0.iter()
    }

    /// The credentials of one user.
    pub fn scram_user(&self, user: &str) -> Option<&BTreeMap<ScramMechanism, ScramCredential>> {
        self.users.0.get(user)
    }

    /// Decides on credentials, one result per user: those that succeed first, then those that are
    /// refused, as Kafka answers.
    ///
    /// Errors: RESOURCE_NOT_FOUND for the deletion of what is not there, DUPLICATE_RESOURCE for a user
    /// that is named twice, UNACCEPTABLE_CREDENTIAL for a name, a salt or an iteration count that none
    /// can have, UNSUPPORTED_SASL_MECHANISM.
    pub fn decide_alter_scram(
        &self,
        deletions: &[ScramDeletion],
        upsertions: &[ScramUpsertion],
    ) -> Vec<ScramDecided> {
        let mut times_named: BTreeMap<&str, usize> = BTreeMap::new();
        let named = deletions.iter().map(|deletion| &deletion.user);
        for user in named.chain(upsertions.iter().map(|upsertion| &upsertion.user)) {
            *times_named.entry(user).or_default() += 1;
        }
        let mut told = BTreeSet::new();
        let deleted = deletions.iter().map(|deletion| {
            let record = self.decide_scram_deletion(deletion);
            (deletion.user.as_str(), record)
        });
        let upserted = upsertions.iter().map(|upsertion| {
            let record = decide_scram_upsertion(upsertion);
            (upsertion.user.as_str(), record)
        });
        let (succeed, mut refused): (Vec<ScramDecided>, Vec<ScramDecided>) = deleted
            .chain(upserted)
            .filter(|(user, _)| told.insert(*user))
            .map(|(user, record)| {
                // What is wrong with the first is told before that there is a second.
                let record = record.and_then(|record| match times_named[user] {
                    1 => Ok(record),
                    _ => Err((
                        ErrorCode::DuplicateResource,
                        "A user credential cannot be altered twice in the same request".to_owned(),
                    )),
                });
                (user.to_owned(), record)
            })
            .partition(|(_, record)| record.is_ok());
        let mut all = succeed;
        all.append(&mut refused);
        all
    }

    fn decide_scram_deletion(&self, deletion: &ScramDeletion) -> Result<MetadataRecord, Refusal> {
        let mechanism = checked(&deletion.user, deletion.mechanism)?;
        let user = &deletion.user;
        if self.scram_credential(user, mechanism).is_none() {
            let message = "Attempt to delete a user credential that does not exist";
            return Err((ErrorCode::ResourceNotFound, message.to_owned()));
        }
        Ok(MetadataRecord::ScramCredentialRemoved {
            user: user.clone(),
            mechanism,
        })
    }

    /// The record that comes before the first one of this kind in a directory that is older.
    pub fn scram_level_record(&self) -> Option<MetadataRecord> {
        let level = SECURITY_LEVEL;
        (self.feature_level() < level).then_some(MetadataRecord::FeatureLevel { level })
    }
}

fn decide_scram_upsertion(upsertion: &ScramUpsertion) -> Result<MetadataRecord, Refusal> {
    let mechanism = checked(&upsertion.user, upsertion.mechanism)?;
    let credential = &upsertion.credential;
    let why = match credential.iterations {
        few if few < *ITERATIONS.start() => Some("Too few iterations".to_owned()),
        many if many > *ITERATIONS.end() => Some("Too many iterations".to_owned()),
        _ if credential.salt.is_empty() => Some("The salt must not be empty".to_owned()),
        _ if credential.salt.len() > MAX_SALT_BYTES => Some(format!(
            "The salt must not be longer than {MAX_SALT_BYTES} bytes"
        )),
        _ => None,
    };
    match why {
        Some(why) => Err((ErrorCode::UnacceptableCredential, why)),
        None => Ok(MetadataRecord::ScramCredentialSet {
            user: upsertion.user.clone(),
            mechanism,
            credential: credential.clone(),
        }),
    }
}

fn checked(user: &str, mechanism: i8) -> Result<ScramMechanism, Refusal> {
    if user.is_empty() {
        let message = "Username must not be empty".to_owned();
        return Err((ErrorCode::UnacceptableCredential, message));
    }
    let known = u8::try_from(mechanism)
        .ok()
        .and_then(ScramMechanism::from_code);
    let mechanism = known.ok_or_else(|| {
        let message = "Unknown SCRAM mechanism".to_owned();
        (ErrorCode::UnsupportedSaslMechanism, message)
    })?;
    if user.len() > MAX_USER_BYTES {
        let message = format!("Username must not be longer than {MAX_USER_BYTES} bytes");
        return Err((ErrorCode::UnacceptableCredential, message));
    }
    Ok(mechanism)
}

#[cfg(test)]
mod tests {
    use tidemark_types::NodeId;

    use super::*;

    fn image() -> MetadataImage {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(3), 1) {
            image.apply(&record);
        }
        image
    }

    fn upsert(user: &str, mechanism: i8, iterations: i32) -> ScramUpsertion {
        ScramUpsertion {
            user: user.to_owned(),
            mechanism,
            credential: ScramCredential {
                iterations,
                salt: vec![1; 26],
                stored_key: vec![2; 32],
                server_key: vec![3; 32],
            },
        }
    }

    fn delete(user: &str, mechanism: i8) -> ScramDeletion {
        ScramDeletion {
            user: user.to_owned(),
            mechanism,
        }
    }

    fn codes(decided: &[ScramDecided]) -> Vec<(&str, ErrorCode)> {
        let code = |record: &Result<_, Refusal>| match record {
            Ok(_) => ErrorCode::None,
            Err((code, _)) => *code,
        };
        decided
            .iter()
            .map(|(user, r)| (user.as_str(), code(r)))
            .collect()
    }

    fn alter(
        image: &mut MetadataImage,
        deletions: &[ScramDeletion],
        upsertions: &[ScramUpsertion],
    ) {
        for (_, record) in image.decide_alter_scram(deletions, upsertions) {
            image.apply(&record.unwrap());
        }
    }

    #[test]
    fn users_come_change_and_go_and_a_checkpoint_keeps_them() {
        let mut image = image();
        alter(
            &mut image,
            &[],
            &[upsert("alice", 1, 4096), upsert("bob", 2, 8192)],
        );
        alter(&mut image, &[], &[upsert("alice", 2, 16_384)]);
        let alice: Vec<_> = image.scram_user("alice").unwrap().keys().copied().collect();
        assert_eq!(alice, [ScramMechanism::Sha256, ScramMechanism::Sha512]);

        let mut restored = MetadataImage::empty();
        for record in image.snapshot_records() {
            restored.apply(&record);
        }
        assert_eq!(restored, image);

        alter(&mut image, &[delete("alice", 1)], &[]);
        assert!(
            image
                .scram_credential("alice", ScramMechanism::Sha256)
                .is_none()
        );
        alter(&mut image, &[delete("alice", 2)], &[]);
        assert_eq!(image.scram_users().len(), 1);
        assert!(image.scram_level_record().is_none());
    }

    #[test]
    fn refusals_are_kafkas() {
        let mut image = image();
        alter(&mut image, &[], &[upsert("alice", 1, 4096)]);
        let deletions = [
            delete("bob", 1),
            delete("alice", 2),
            delete("", 1),
            delete("carl", 0),
        ];
        let upsertions = [
            upsert("few", 1, 4095),
            upsert("many", 2, 16_385),
            upsert("twice", 1, 4096),
            upsert("twice", 2, 4096),
            upsert("which", 3, 4096),
            upsert("which2", -1, 4096),
            upsert(&"x".repeat(256), 1, 4096),
            upsert("good", 1, 4096),
        ];
        assert_eq!(
            codes(&image.decide_alter_scram(&deletions, &upsertions)),
            [
                ("good", ErrorCode::None),
                ("bob", ErrorCode::ResourceNotFound),
                ("alice", ErrorCode::ResourceNotFound),
                ("", ErrorCode::UnacceptableCredential),
                ("carl", ErrorCode::UnsupportedSaslMechanism),
                ("few", ErrorCode::UnacceptableCredential),
                ("many", ErrorCode::UnacceptableCredential),
                ("twice", ErrorCode::DuplicateResource),
                ("which", ErrorCode::UnsupportedSaslMechanism),
                ("which2", ErrorCode::UnsupportedSaslMechanism),
                (&"x".repeat(256), ErrorCode::UnacceptableCredential),
            ]
        );
        // Deleted and set in one request.
        let both = image.decide_alter_scram(&[delete("alice", 1)], &[upsert("alice", 1, 4096)]);
        assert_eq!(codes(&both), [("alice", ErrorCode::DuplicateResource)]);
        let mut salts = [upsert("a", 1, 4096), upsert("b", 1, 4096)];
        salts[0].credential.salt.clear();
        salts[1].credential.salt = vec![0; 256];
        let refused = image.decide_alter_scram(&[], &salts);
        assert!(
            codes(&refused)
                .iter()
                .all(|(_, c)| *c == ErrorCode::UnacceptableCredential)
        );
    }

    #[test]
    fn an_older_directory_is_raised_first() {
        let mut old = MetadataImage::empty();
        old.apply(&MetadataRecord::FeatureLevel { level: 3 });
        assert_eq!(
            old.scram_level_record(),
            Some(MetadataRecord::FeatureLevel { level: 4 })
        );
    }

    #[test]
    fn a_credential_is_not_shown() {
        let shown = format!("{:?}", upsert("alice", 1, 4096));
        assert!(
            !shown.contains("[1, 1") && shown.contains("[hidden]"),
            "{shown}"
        );
    }
}
