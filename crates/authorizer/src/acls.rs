use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::acl::Acl;
use crate::filter::AclFilter;
use crate::index::{Entry, Patterns, Said};
use crate::words::{Operation, PatternType, Permission, ResourceType};
use crate::{WILDCARD, index};

/// All ACLs of a cluster, as a set.
///
/// A check of 10,000 ACLs costs a few look-ups: the principal's literal patterns are found by name, its
/// prefixed ones by a walk over those that the name begins with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Acls {
    by_principal: BTreeMap<ResourceType, BTreeMap<Arc<str>, Patterns>>,
    /// How many ACLs each pattern has, over all principals.
    counts: BTreeMap<(ResourceType, PatternType), BTreeMap<Arc<str>, usize>>,
    len: usize,
}

impl Acls {
    pub fn new() -> Acls {
        Acls::default()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// False if it was there already.
    pub fn insert(&mut self, acl: &Acl) -> bool {
        let patterns = (self.by_principal.entry(acl.resource_type).or_default())
            .entry(acl.principal.clone())
            .or_default();
        if !patterns.insert(acl.pattern_type, &acl.name, entry(acl)) {
            return false;
        }
        let counts = self.counts.entry((acl.resource_type, acl.pattern_type));
        *counts.or_default().entry(acl.name.clone()).or_default() += 1;
        self.len += 1;
        true
    }

    /// Removes exactly this one. False if it was not there.
    pub fn remove(&mut self, acl: &Acl) -> bool {
        let Some(principals) = self.by_principal.get_mut(&acl.resource_type) else {
            return false;
        };
        let Some(patterns) = principals.get_mut(&acl.principal) else {
            return false;
        };
        if !patterns.remove(acl.pattern_type, &acl.name, &entry(acl)) {
            return false;
        }
        if patterns.is_empty() {
            principals.remove(&acl.principal);
        }
        if principals.is_empty() {
            self.by_principal.remove(&acl.resource_type);
        }
        let key = (acl.resource_type, acl.pattern_type);
        let counts = self.counts.get_mut(&key);
        let counts = counts.expect("the pattern of an ACL is counted");
        let count = counts.get_mut(&acl.name);
        let count = count.expect("the pattern of an ACL is counted");
        *count -= 1;
        if *count == 0 {
            counts.remove(&acl.name);
        }
        if counts.is_empty() {
            self.counts.remove(&key);
        }
        self.len -= 1;
        true
    }

    pub fn contains(&self, acl: &Acl) -> bool {
        self.patterns(acl.resource_type, &acl.principal)
            .is_some_and(|patterns| {
                let entries = patterns.entries(acl.pattern_type, &acl.name);
                entries.binary_search(&entry(acl)).is_ok()
            })
    }

    /// Every one, by resource type, principal, pattern type and name.
    pub fn iter(&self) -> impl Iterator<Item = Acl> {
        self.by_principal
            .iter()
            .flat_map(|(resource_type, principals)| {
                principals.iter().flat_map(move |(principal, patterns)| {
                    PatternType::ALL.iter().flat_map(move |pattern_type| {
                        let named = patterns.of(*pattern_type).iter();
                        named.flat_map(move |(name, entries)| {
                            entries.iter().map(move |entry| Acl {
                                resource_type: *resource_type,
                                name: name.clone(),
                                pattern_type: *pattern_type,
                                principal: principal.clone(),
                                host: entry.host.clone(),
                                operation: entry.operation,
                                permission: entry.permission,
                            })
                        })
                    })
                })
            })
    }

    /// Those that a filter means.
    pub fn matching<'a>(&'a self, filter: &'a AclFilter) -> impl Iterator<Item = Acl> + 'a {
        self.iter().filter(|acl| filter.matches(acl))
    }

    fn patterns(&self, resource_type: ResourceType, principal: &str) -> Option<&Patterns> {
        self.by_principal.get(&resource_type)?.get(principal)
    }

    /// What the ACLs of one principal say of an operation on a resource.
    pub(crate) fn say(
        &self,
        principal: &str,
        host: IpAddr,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> Said {
        let patterns = self.patterns(resource_type, principal);
        patterns.map_or(Said::Nothing, |p| p.say(name, operation, host))
    }

    /// True if an ACL of anybody is about the resource.
    pub(crate) fn speaks_of(&self, resource_type: ResourceType, name: &str) -> bool {
        let counts = |pattern_type| self.counts.get(&(resource_type, pattern_type));
        counts(PatternType::Literal)
            .is_some_and(|names| names.contains_key(name) || names.contains_key(WILDCARD))
            || counts(PatternType::Prefixed)
                .is_some_and(|names| index::prefixes(names, name).next().is_some())
    }

    /// True if the ACLs of these principals allow the operation on some resource of the type, whatever
    /// its name: Kafka's authorizeByResourceType. An ACL that allows counts unless one denies all that
    /// it can allow. Operations are taken by name: none implies another here.
    pub(crate) fn allow_some(
        &self,
        principals: [&str; 2],
        host: IpAddr,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        let named = |entry: &&Entry| {
            matches!(entry.operation, Operation::All) || entry.operation == operation
        };
        let has = |entries: &[Entry], permission| {
            entries
                .iter()
                .filter(named)
                .any(|entry| entry.permission == permission && entry.fits_host(host))
        };
        let all = || (principals.iter()).filter_map(|p| self.patterns(resource_type, p));
        let denied = |pattern_type, name: &str| {
            all().any(|p| has(p.entries(pattern_type, name), Permission::Deny))
        };
        if denied(PatternType::Literal, WILDCARD) {
            return false;
        }
        all().any(|patterns| {
            PatternType::ALL.iter().any(|pattern_type| {
                patterns.of(*pattern_type).iter().any(|(name, entries)| {
                    let is_literal = *pattern_type == PatternType::Literal;
                    if !has(entries, Permission::Allow) {
                        return false;
                    }
                    if is_literal && &**name == WILDCARD {
                        return true;
                    }
                    let dominated = all().any(|patterns| {
                        index::prefixes(patterns.of(PatternType::Prefixed), name)
                            .any(|(_, entries)| has(entries, Permission::Deny))
                    });
                    !(dominated || (is_literal && denied(PatternType::Literal, name)))
                })
            })
        })
    }

    /// What must hold after every change; the error names what does not. For tests.
    pub fn check(&self) -> Result<(), String> {
        let mut counts: BTreeMap<_, BTreeMap<Arc<str>, usize>> = BTreeMap::new();
        let mut len = 0;
        for acl in self.iter() {
            let named = counts.entry((acl.resource_type, acl.pattern_type));
            *named.or_default().entry(acl.name).or_default() += 1;
            len += 1;
        }
        if counts != self.counts {
            return Err(format!("patterns {counts:?}, counted as {:?}", self.counts));
        }
        if len != self.len {
            return Err(format!("{len} ACLs, counted as {}", self.len));
        }
        let empty = self
            .by_principal
            .values()
            .any(|principals| principals.is_empty() || principals.values().any(Patterns::is_empty));
        match empty {
            true => Err("an empty place is left of an ACL that is gone".to_owned()),
            false => Ok(()),
        }
    }
}

fn entry(acl: &Acl) -> Entry {
    Entry {
        host: acl.host.clone(),
        operation: acl.operation,
        permission: acl.permission,
    }
}
