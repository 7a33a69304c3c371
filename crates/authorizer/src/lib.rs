//! Who may do what: Kafka's access control lists.
//!
//! [`Acls`] holds the ACLs, indexed so that a check looks at those of the principal and the resource
//! only. [`Rules`] are the settings around them (super users, what holds where no ACL speaks of a
//! resource) and decide. What a request must be allowed is the broker's knowledge, not this crate's.
//!
//! Pure: no clock, file, socket or randomness.

mod acl;
mod acls;
mod filter;
mod index;
mod rules;
mod words;

pub use acl::{Acl, MAX_TEXT_BYTES};
pub use acls::Acls;
pub use filter::{AclFilter, PatternFilter};
pub use rules::{ANY_PRINCIPAL, Action, Rules, Verdict, parse_super_users};
pub use words::{Operation, PatternType, Permission, ResourceType};

/// The only name that the cluster has as a resource.
pub const CLUSTER_NAME: &str = "kafka-cluster";

/// In an ACL: every name, where it is the name of a literal pattern; every host.
pub const WILDCARD: &str = "*";
