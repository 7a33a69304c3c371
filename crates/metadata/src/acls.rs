//! CreateAcls: which ACLs may be made.

use std::collections::BTreeSet;

use tidemark_authorizer::{Acl, CLUSTER_NAME, MAX_TEXT_BYTES, ResourceType};
use tidemark_types::ErrorCode;

use crate::Refusal;
use crate::image::MetadataImage;
use crate::record::{MetadataRecord, SECURITY_LEVEL};

impl MetadataImage {
    /// Decides on each ACL to be made: its record, or `None` where there is one like it already.
    ///
    /// Errors: INVALID_REQUEST for a cluster of another name, an empty name, a principal that is no
    /// `TYPE:NAME` and texts that are too long; POLICY_VIOLATION where there are `max_acls` already.
    pub fn decide_create_acls(
        &self,
        acls: &[Acl],
        max_acls: usize,
    ) -> Vec<Result<Option<MetadataRecord>, Refusal>> {
        let mut added = BTreeSet::new();
        acls.iter()
            .map(|acl| {
                check(acl)?;
                if self.acls().contains(acl) || added.contains(acl) {
                    return Ok(None);
                }
                if self.acls().len() + added.len() >= max_acls {
                    let message = format!("There are {max_acls} ACLs, the most of max.acls.");
                    return Err((ErrorCode::PolicyViolation, message));
                }
                added.insert(acl);
                Ok(Some(MetadataRecord::AclAdded(acl.clone())))
            })
            .collect()
    }

    /// What must come before the first record about ACLs: an older data directory is raised with it.
    pub fn raise_for_acls(&self) -> Option<MetadataRecord> {
        let level = SECURITY_LEVEL;
        (self.feature_level() < level).then_some(MetadataRecord::FeatureLevel { level })
    }
}

fn check(acl: &Acl) -> Result<(), Refusal> {
    let invalid = |message: String| Err((ErrorCode::InvalidRequest, message));
    if acl.resource_type == ResourceType::Cluster && &*acl.name != CLUSTER_NAME {
        return invalid(format!(
            "The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        ));
    }
    if acl.name.is_empty() {
        return invalid("Invalid empty resource name".to_owned());
    }
    if !acl.principal.contains(':') {
        return invalid(format!(
            "Could not parse principal from `{}` (no colon is present separating the principal type \
             from the principal name)",
            acl.principal
        ));
    }
    let texts = [&acl.name, &acl.principal, &acl.host];
    if texts.iter().any(|text| text.len() > MAX_TEXT_BYTES) {
        return invalid(format!(
            "A resource name, principal or host has more than {MAX_TEXT_BYTES} bytes"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidemark_authorizer::{Operation, PatternType, Permission};
    use tidemark_types::NodeId;

    use super::*;

    fn acl(name: &str) -> Acl {
        Acl {
            resource_type: ResourceType::Topic,
            name: name.into(),
            pattern_type: PatternType::Literal,
            principal: "User:alice".into(),
            host: "*".into(),
            operation: Operation::Read,
            permission: Permission::Allow,
        }
    }

    fn image() -> MetadataImage {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(3), 1) {
            image.apply(&record);
        }
        image
    }

    #[test]
    fn what_is_there_is_not_made_again_and_there_is_a_most() {
        let mut image = image();
        let wanted = [acl("a"), acl("a"), acl("b"), acl("c")];
        let decided = image.decide_create_acls(&wanted, 2);
        assert_eq!(decided[0], Ok(Some(MetadataRecord::AclAdded(acl("a")))));
        assert_eq!(decided[1], Ok(None));
        assert_eq!(decided[2], Ok(Some(MetadataRecord::AclAdded(acl("b")))));
        let full = decided[3].as_ref().unwrap_err();
        assert_eq!(full.0, ErrorCode::PolicyViolation);
        for record in decided.iter().flatten().flatten() {
            image.apply(record);
        }
        assert_eq!(
            image.decide_create_acls(&wanted[..3], 2),
            [Ok(None), Ok(None), Ok(None)]
        );
        image.apply(&MetadataRecord::AclRemoved(acl("a")));
        assert_eq!(image.acls().iter().collect::<Vec<_>>(), [acl("b")]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let cluster = Acl {
            resource_type: ResourceType::Cluster,
            ..acl("elsewhere")
        };
        let nobody = Acl {
            principal: "alice".into(),
            ..acl("a")
        };
        let long = acl(&"x".repeat(MAX_TEXT_BYTES + 1));
        for wrong in [cluster, acl(""), nobody, long] {
            let decided = image().decide_create_acls(std::slice::from_ref(&wrong), 10);
            let refused = decided[0].as_ref().unwrap_err();
            assert_eq!(refused.0, ErrorCode::InvalidRequest, "{wrong}");
        }
    }

    #[test]
    fn an_older_directory_is_raised_with_the_first() {
        let mut old = MetadataImage::empty();
        old.apply(&MetadataRecord::FeatureLevel { level: 3 });
        let raise = old.raise_for_acls();
        assert_eq!(raise, Some(MetadataRecord::FeatureLevel { level: 4 }));
        old.apply(&raise.unwrap());
        assert_eq!(old.raise_for_acls(), None);
        assert_eq!(image().raise_for_acls(), None);
    }
}
