//! Patterns by name, and of those of a name the ones that it fits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::WILDCARD;
use crate::words::{Operation, PatternType, Permission};

/// What is left of an ACL whose resource type, pattern and principal are known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    pub(crate) host: Arc<str>,
    pub(crate) operation: Operation,
    pub(crate) permission: Permission,
}

impl Entry {
    /// An address is compared as one, however it is written: Kafka's brokers write IPv6 addresses
    /// without `::`, people with it.
    pub(crate) fn fits_host(&self, host: IpAddr) -> bool {
        &*self.host == WILDCARD || self.host.parse().is_ok_and(|own: IpAddr| own == host)
    }
}

/// The patterns of one resource type and principal. No list of entries is empty.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Patterns {
    literal: BTreeMap<Arc<str>, Vec<Entry>>,
    prefixed: BTreeMap<Arc<str>, Vec<Entry>>,
}

/// What the entries of one principal say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Nothing,
    Allowed,
    Denied,
}

impl Said {
    fn and(self, other: Said) -> Said {
        match (self, other) {
            (Said::Denied, _) | (_, Said::Denied) => Said::Denied,
            (Said::Allowed, _) | (_, Said::Allowed) => Said::Allowed,
            (Said::Nothing, Said::Nothing) => Said::Nothing,
        }
    }
}

impl Patterns {
    pub(crate) fn of(&self, pattern_type: PatternType) -> &BTreeMap<Arc<str>, Vec<Entry>> {
        match pattern_type {
            PatternType::Literal => &self.literal,
            PatternType::Prefixed => &self.prefixed,
        }
    }

    fn of_mut(&mut self, pattern_type: PatternType) -> &mut BTreeMap<Arc<str>, Vec<Entry>> {
        match pattern_type {
            PatternType::Literal => &mut self.literal,
            PatternType::Prefixed => &mut self.prefixed,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.literal.is_empty() && self.prefixed.is_empty()
    }

    pub(crate) fn entries(&self, pattern_type: PatternType, name: &str) -> &[Entry] {
        self.of(pattern_type).get(name).map_or(&[], Vec::as_slice)
    }

    /// False if it was there.
    pub(crate) fn insert(
        &mut self,
        pattern_type: PatternType,
        name: &Arc<str>,
        entry: Entry,
    ) -> bool {
        let entries = self.of_mut(pattern_type).entry(name.clone()).or_default();
        match entries.binary_search(&entry) {
            Ok(_) => false,
            Err(at) => {
                entries.insert(at, entry);
                true
            }
        }
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, pattern_type: PatternType, name: &str, entry: &Entry) -> bool {
        let patterns = self.of_mut(pattern_type);
        let Some(entries) = patterns.get_mut(name) else {
            return false;
        };
        let Ok(at) = entries.binary_search(entry) else {
            return false;
        };
        entries.remove(at);
        if entries.is_empty() {
            patterns.remove(name);
        }
        true
    }

    /// What is said of an operation on a resource of this name.
    pub(crate) fn say(&self, name: &str, operation: Operation, host: IpAddr) -> Said {
        let said = self
            .literal
            .get(name)
            .map_or(Said::Nothing, |entries| say(entries, operation, host));
        let of_all = self
            .literal
            .get(WILDCARD)
            .map_or(Said::Nothing, |entries| say(entries, operation, host));
        let mut said = said.and(of_all);
        for (_, entries) in prefixes(&self.prefixed, name) {
            if said == Said::Denied {
                break;
            }
            said = said.and(say(entries, operation, host));
        }
        said
    }
}

fn say(entries: &[Entry], operation: Operation, host: IpAddr) -> Said {
    let mut said = Said::Nothing;
    for entry in entries {
        let fits = match entry.permission {
            Permission::Allow => entry.operation.allows(operation),
            Permission::Deny => entry.operation.denies(operation),
        };
        if !fits || !entry.fits_host(host) {
            continue;
        }
        match entry.permission {
            Permission::Deny => return Said::Denied,
            Permission::Allow => said = Said::Allowed,
        }
    }
    said
}

/// The keys that `name` begins with, and their values, the longest first. Each step goes to the next
/// key that can be one, so that it takes as many as there are of them, and no more than `name` has
/// letters that a key differs from it at.
pub(crate) fn prefixes<'a, T>(
    map: &'a BTreeMap<Arc<str>, T>,
    name: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    // Keys at or below it, or below it, are left.
    let mut below = Included(name);
    std::iter::from_fn(move || {
        loop {
            let range = map.range::<str, _>((Unbounded, below));
            let (key, value) = range.into_iter().next_back()?;
            if name.starts_with(&**key) {
                below = Excluded(key);
                return Some((key, value));
            }
            // It is below `name` and no prefix: whatever is one is no longer than what both begin
            // with.
            below = Included(common_prefix(name, key));
        }
    })
}

fn common_prefix<'a>(name: &'a str, other: &str) -> &'a str {
    let same = name.bytes().zip(other.bytes());
    let mut len = same.take_while(|(a, b)| a == b).count();
    while !name.is_char_boundary(len) {
        len -= 1;
    }
    &name[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_is_found_and_nothing_else() {
        let keys = ["", "a", "ab", "abc", "abd", "b", "aé", "aè", "aéx", "abcde"];
        let map: BTreeMap<Arc<str>, ()> = keys.iter().map(|k| (Arc::from(*k), ())).collect();
        for name in ["", "a", "abc", "abcd", "abz", "aéx", "aê", "aéy", "zz", "é"] {
            let found: Vec<&str> = prefixes(&map, name).map(|(key, ())| &**key).collect();
            let mut expected: Vec<&str> = keys
                .iter()
                .copied()
                .filter(|key| name.starts_with(key))
                .collect();
            expected.sort_by_key(|key| std::cmp::Reverse(key.len()));
            assert_eq!(found, expected, "{name}");
        }
    }
}
