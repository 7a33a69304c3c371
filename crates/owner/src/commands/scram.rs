//! AlterUserScramCredentials: users' credentials are set and taken away, in one record. Whoever
//! authenticates after the answer does so by what it says; who has authenticated goes on.

use tidemark_metadata::{Refusal, ScramDeletion, ScramUpsertion};
use tidemark_types::ErrorCode;

use crate::Owner;
use crate::command::{Now, Step};

#[derive(Clone, Debug, Default)]
pub struct AlterScram {
    pub deletions: Vec<ScramDeletion>,
    pub upsertions: Vec<ScramUpsertion>,
    /// The first users of all, each with as many mechanisms as are named: nothing is changed, and
    /// nothing answered, if there is any user.
    pub only_the_first: bool,
}

impl Owner {
    pub(crate) fn alter_scram(
        &mut self,
        request: &AlterScram,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<(String, Result<(), Refusal>)> {
        if request.only_the_first && self.metadata.scram_users().len() > 0 {
            return Vec::new();
        }
        let mut draft = self.begin(now);
        let decided = match request.only_the_first {
            false => self
                .metadata
                .decide_alter_scram(&request.deletions, &request.upsertions),
            // A request names a user once; this is one request per credential, and one record.
            true => (request.upsertions.iter())
                .flat_map(|upsertion| {
                    let one = std::slice::from_ref(upsertion);
                    self.metadata.decide_alter_scram(&[], one)
                })
                .collect(),
        };
        let altered = decided
            .into_iter()
            .map(|(user, record)| {
                let done = record.and_then(|record| {
                    let level = self.metadata.scram_level_record();
                    let records: Vec<_> = level.into_iter().chain([record]).collect();
                    if !self.has_room_for(&draft, 0, &records) {
                        let message = "the credential does not fit one journal record with what \
                                       stands before it in the request";
                        return Err((ErrorCode::UnacceptableCredential, message.to_owned()));
                    }
                    self.append_metadata(&mut draft, &records);
                    Ok(())
                });
                (user, done)
            })
            .collect();
        self.finish(draft, step);
        altered
    }
}
