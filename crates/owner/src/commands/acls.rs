//! CreateAcls and DeleteAcls. They are in force with the record: a request that is looked at after the
//! answer is decided by the new ACLs.

use std::collections::BTreeSet;

use tidemark_authorizer::{Acl, AclFilter};
use tidemark_metadata::{MetadataRecord, Refusal};
use tidemark_types::ErrorCode;

use super::topics::metadata_bytes;
use crate::Owner;
use crate::command::{Now, Step};
use crate::draft::Draft;

/// Looks at an ACL for all filters of a request together, and ACLs that are told. More is a request of
/// nobody who means well, and the owner does one thing at a time.
const MAX_LOOKS: usize = 20_000_000;
const MAX_TOLD: usize = 100_000;

impl Owner {
    /// One result per ACL, in the order of the request: a refused one does not hold up the others.
    pub(crate) fn create_acls(
        &mut self,
        acls: &[Acl],
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Result<(), Refusal>> {
        let mut draft = self.begin(now);
        let mut records: Vec<_> = self.metadata.raise_for_acls().into_iter().collect();
        let raised = records.len();
        let mut bytes = 0;
        // One that stands twice in a request is made once, or not at all.
        let mut refused = BTreeSet::new();
        let decided = self
            .metadata
            .decide_create_acls(acls, self.options.max_acls);
        let created = acls
            .iter()
            .zip(decided)
            .map(|(acl, decided)| {
                let Some(record) = decided? else {
                    return match refused.contains(acl) {
                        true => Err(too_much("The ACLs do")),
                        false => Ok(()),
                    };
                };
                bytes += metadata_bytes(&record);
                if !self.has_room_beside(&draft, bytes) {
                    refused.insert(acl);
                    return Err(too_much("The ACLs do"));
                }
                records.push(record);
                Ok(())
            })
            .collect();
        if records.len() > raised {
            self.append_metadata(&mut draft, &records);
        }
        self.finish(draft, step);
        created
    }

    /// Per filter, in the order of the request: what it means, which is removed. An ACL that two
    /// filters mean is told by both, as in Kafka.
    pub(crate) fn delete_acls(
        &mut self,
        filters: &[AclFilter],
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Result<Vec<Acl>, Refusal>> {
        let mut draft = self.begin(now);
        let mut gone = BTreeSet::new();
        let mut bytes = 0;
        let (mut looks, mut told) = (0, 0);
        let deleted = filters
            .iter()
            .map(|filter| {
                looks += self.metadata.acls().len();
                if looks > MAX_LOOKS || told > MAX_TOLD {
                    return Err(too_much("The filters do"));
                }
                let meant: Vec<Acl> = self.metadata.acls().matching(filter).collect();
                told += meant.len();
                let fresh = meant.iter().filter(|acl| !gone.contains(*acl));
                let fresh_bytes: usize = fresh
                    .map(|acl| metadata_bytes(&MetadataRecord::AclRemoved(acl.clone())))
                    .sum();
                if !self.has_room_beside(&draft, bytes + fresh_bytes) {
                    return Err(too_much("The ACLs that are meant do"));
                }
                bytes += fresh_bytes;
                gone.extend(meant.iter().cloned());
                Ok(meant)
            })
            .collect();
        if !gone.is_empty() {
            let records = gone.into_iter().map(MetadataRecord::AclRemoved);
            self.append_metadata(&mut draft, &records.collect::<Vec<_>>());
        }
        self.finish(draft, step);
        deleted
    }

    fn has_room_beside(&self, draft: &Draft, bytes: usize) -> bool {
        draft.bytes + bytes <= self.max_record_bytes
    }
}

fn too_much(what: &str) -> Refusal {
    let message = format!("{what} not fit one journal record; name fewer at a time");
    (ErrorCode::InvalidRequest, message)
}
