use std::sync::Arc;

use crate::WILDCARD;
use crate::acl::Acl;
use crate::words::{Operation, PatternType, Permission, ResourceType};

/// Which patterns a filter wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PatternFilter {
    /// Of either type, with exactly the filter's name.
    Any,
    /// Whatever would be looked at for the filter's name: that name, the wildcard and its prefixes.
    Match,
    /// Of this type, with exactly the filter's name.
    Of(PatternType),
}

/// Which ACLs are meant: Kafka's AclBindingFilter. `None` does not restrict.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AclFilter {
    pub resource_type: Option<ResourceType>,
    pub name: Option<Arc<str>>,
    pub pattern: PatternFilter,
    pub principal: Option<Arc<str>>,
    pub host: Option<Arc<str>>,
    pub operation: Option<Operation>,
    pub permission: Option<Permission>,
}

impl AclFilter {
    /// Every ACL there is.
    pub const ANY: AclFilter = AclFilter {
        resource_type: None,
        name: None,
        pattern: PatternFilter::Any,
        principal: None,
        host: None,
        operation: None,
        permission: None,
    };

    /// True if the ACL is one of those that are meant. An operation is the one that is named, not
    /// what it implies.
    pub fn matches(&self, acl: &Acl) -> bool {
        self.resource_type.is_none_or(|t| t == acl.resource_type)
            && self.matches_pattern(acl)
            && (self.principal.as_ref()).is_none_or(|p| *p == acl.principal)
            && self.host.as_ref().is_none_or(|h| *h == acl.host)
            && self.operation.is_none_or(|o| o == acl.operation)
            && self.permission.is_none_or(|p| p == acl.permission)
    }

    fn matches_pattern(&self, acl: &Acl) -> bool {
        if let PatternFilter::Of(pattern_type) = self.pattern
            && pattern_type != acl.pattern_type
        {
            return false;
        }
        let Some(name) = &self.name else {
            return true;
        };
        match (self.pattern, acl.pattern_type) {
            (PatternFilter::Match, PatternType::Literal) => {
                *name == acl.name || &*acl.name == WILDCARD
            }
            (PatternFilter::Match, PatternType::Prefixed) => name.starts_with(&*acl.name),
            _ => *name == acl.name,
        }
    }
}
