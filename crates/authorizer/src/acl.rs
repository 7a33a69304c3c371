use std::fmt;
use std::sync::Arc;

use crate::words::{Operation, PatternType, Permission, ResourceType};

/// The longest name, principal or host of an ACL, in bytes. Kafka has no limit; with the bound on
/// their number it is what keeps all ACLs together small.
pub const MAX_TEXT_BYTES: usize = 1024;

/// One access control list entry: Kafka's AclBinding. Two that are equal are one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Acl {
    pub resource_type: ResourceType,
    pub name: Arc<str>,
    pub pattern_type: PatternType,
    /// `User:NAME`; `User:*` is everybody.
    pub principal: Arc<str>,
    /// An address; [`crate::WILDCARD`] is any.
    pub host: Arc<str>,
    pub operation: Operation,
    pub permission: Permission,
}

impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Acl {
            resource_type,
            name,
            pattern_type,
            principal,
            host,
            operation,
            permission,
        } = self;
        write!(
            f,
            "{permission} {principal} from {host} to {operation} {resource_type}:{pattern_type}:{name}"
        )
    }
}
