//! The index against a list that is looked through whole, as Kafka's rules are written down.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidemark_authorizer::{
    ANY_PRINCIPAL, Acl, AclFilter, Acls, Action, Operation, PatternFilter, PatternType, Permission,
    ResourceType, Rules, WILDCARD,
};

const NAMES: &[&str] = &[
    "a", "ab", "abc", "abd", "b", "*", "hard", "hardcode", "é", "éa", "a*",
];
const PRINCIPALS: &[&str] = &[
    "User:alice",
    "User:bob",
    "User:*",
    "Group:alice",
    "User:root",
];
const HOSTS: &[&str] = &[
    "*",
    "10.0.0.1",
    "10.0.0.2",
    "::1",
    "0:0:0:0:0:0:0:1",
    "nowhere",
];
const TYPES: &[ResourceType] = &[ResourceType::Topic, ResourceType::Group];
const OPERATIONS: &[Operation] = &[
    Operation::All,
    Operation::Read,
    Operation::Write,
    Operation::Delete,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];

fn any_acl() -> impl Strategy<Value = Acl> {
    (
        select(TYPES),
        select(NAMES),
        select(PatternType::ALL),
        select(PRINCIPALS),
        select(HOSTS),
        select(OPERATIONS),
        // Fewer denials, or nothing is ever allowed.
        prop_oneof![3 => Just(Permission::Allow), 1 => Just(Permission::Deny)],
    )
        .prop_map(
            |(resource_type, name, pattern_type, principal, host, operation, permission)| Acl {
                resource_type,
                name: Arc::from(name),
                pattern_type,
                principal: Arc::from(principal),
                host: Arc::from(host),
                operation,
                permission,
            },
        )
}

fn any_filter() -> impl Strategy<Value = AclFilter> {
    let pattern = prop_oneof![
        Just(PatternFilter::Any),
        Just(PatternFilter::Match),
        select(PatternType::ALL).prop_map(PatternFilter::Of),
    ];
    let text = |of: &'static [&'static str]| {
        proptest::option::of(select(of).prop_map(|text: &str| Arc::<str>::from(text)))
    };
    (
        proptest::option::of(select(TYPES)),
        text(NAMES),
        pattern,
        text(PRINCIPALS),
        text(HOSTS),
        proptest::option::of(select(OPERATIONS)),
        proptest::option::of(select(Permission::ALL)),
    )
        .prop_map(
            |(resource_type, name, pattern, principal, host, operation, permission)| AclFilter {
                resource_type,
                name,
                pattern,
                principal,
                host,
                operation,
                permission,
            },
        )
}

fn is_about(acl: &Acl, resource_type: ResourceType, name: &str) -> bool {
    acl.resource_type == resource_type
        && match acl.pattern_type {
            PatternType::Literal => &*acl.name == name || &*acl.name == WILDCARD,
            PatternType::Prefixed => name.starts_with(&*acl.name),
        }
}

fn is_of(acl: &Acl, principal: &str, host: IpAddr) -> bool {
    let of_host = &*acl.host == WILDCARD || acl.host.parse() == Ok(host);
    (&*acl.principal == principal || &*acl.principal == ANY_PRINCIPAL) && of_host
}

/// StandardAuthorizer, one ACL after the other.
fn model_allows(acls: &BTreeSet<Acl>, rules: &Rules, action: &Action<'_>) -> bool {
    let Action {
        principal,
        host,
        operation,
        resource_type,
        name,
    } = *action;
    if rules.super_users.contains(principal) {
        return true;
    }
    let about: Vec<&Acl> = acls
        .iter()
        .filter(|acl| is_about(acl, resource_type, name))
        .collect();
    if about.is_empty() {
        return rules.allow_everyone_if_no_acl_found;
    }
    let mine = || about.iter().filter(|acl| is_of(acl, principal, host));
    let implied: &[Operation] = match operation {
        Operation::Describe => &[
            Operation::Describe,
            Operation::Read,
            Operation::Write,
            Operation::Delete,
            Operation::Alter,
        ],
        Operation::DescribeConfigs => &[Operation::DescribeConfigs, Operation::AlterConfigs],
        _ => &[],
    };
    let denied = mine().any(|acl| {
        acl.permission == Permission::Deny
            && (acl.operation == Operation::All || acl.operation == operation)
    });
    let allowed = mine().any(|acl| {
        acl.permission == Permission::Allow
            && (acl.operation == Operation::All
                || acl.operation == operation
                || implied.contains(&acl.operation))
    });
    allowed && !denied
}

/// Kafka's authorizeByResourceType over a list.
fn model_allows_some(
    acls: &BTreeSet<Acl>,
    rules: &Rules,
    principal: &str,
    host: IpAddr,
    operation: Operation,
    resource_type: ResourceType,
) -> bool {
    let action = Action {
        principal,
        host,
        operation,
        resource_type,
        name: "hardcode",
    };
    if model_allows(acls, rules, &action) {
        return true;
    }
    let mine: Vec<&Acl> = acls
        .iter()
        .filter(|acl| acl.resource_type == resource_type && is_of(acl, principal, host))
        .filter(|acl| acl.operation == operation || acl.operation == Operation::All)
        .collect();
    let denies = |pattern_type, name: &str| {
        mine.iter().any(|acl| {
            acl.permission == Permission::Deny
                && acl.pattern_type == pattern_type
                && &*acl.name == name
        })
    };
    if denies(PatternType::Literal, WILDCARD) {
        return false;
    }
    mine.iter()
        .filter(|acl| acl.permission == Permission::Allow)
        .any(|acl| {
            if acl.pattern_type == PatternType::Literal && &*acl.name == WILDCARD {
                return true;
            }
            let ends = acl.name.char_indices().map(|(at, c)| at + c.len_utf8());
            let mut begins = ends.map(|end| &acl.name[..end]);
            let dominated = begins.any(|begin| denies(PatternType::Prefixed, begin));
            let same =
                acl.pattern_type == PatternType::Literal && denies(PatternType::Literal, &acl.name);
            !dominated && !same
        })
}

fn rules(everyone: bool) -> Rules {
    Rules {
        super_users: BTreeSet::from(["User:root".to_owned()]),
        allow_everyone_if_no_acl_found: everyone,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever was added and removed before: every check answers as the list does.
    #[test]
    fn the_index_decides_as_a_list_would(
        acls in vec(any_acl(), 0..24),
        removed in vec(any::<prop::sample::Index>(), 0..8),
        everyone in any::<bool>(),
    ) {
        let mut index = Acls::new();
        let mut list = BTreeSet::new();
        for acl in &acls {
            prop_assert_eq!(index.insert(acl), list.insert(acl.clone()));
        }
        for at in removed {
            if let Some(acl) = acls.get(at.index(acls.len().max(1))) {
                prop_assert_eq!(index.remove(acl), list.remove(acl));
            }
        }
        prop_assert_eq!(index.check(), Ok(()));
        prop_assert_eq!(index.iter().collect::<BTreeSet<_>>(), list.clone());
        prop_assert_eq!(index.len(), list.len());
        for acl in &acls {
            prop_assert_eq!(index.contains(acl), list.contains(acl));
        }
        let rules = rules(everyone);
        for principal in ["User:alice", "User:bob", "User:carol", "Group:alice", "User:root"] {
            for host in ["10.0.0.1", "10.0.0.9", "::1"] {
                let host: IpAddr = host.parse().unwrap();
                for &operation in &OPERATIONS[1..] {
                    for &resource_type in TYPES {
                        for name in ["a", "abc", "abcd", "ab", "b", "x", "*", "éab", ""] {
                            let action = Action { principal, host, operation, resource_type, name };
                            let allowed = rules.decide(&index, &action).is_allowed();
                            let expected = model_allows(&list, &rules, &action);
                            prop_assert_eq!(allowed, expected, "{:?} over {:#?}", action, list);
                        }
                        let somewhere =
                            rules.may_somewhere(&index, principal, host, operation, resource_type);
                        let expected = model_allows_some(
                            &list, &rules, principal, host, operation, resource_type,
                        );
                        prop_assert_eq!(
                            somewhere, expected,
                            "{} {:?} {:?} over {:#?}", principal, operation, resource_type, list
                        );
                    }
                }
            }
        }
    }

    /// CVE-2024-27309: the removal of one ACL of a resource took others of it away.
    #[test]
    fn cve_2024_27309_the_removal_of_an_acl_drops_no_other(
        acls in vec(any_acl(), 1..32),
        at in any::<prop::sample::Index>(),
    ) {
        let mut index = Acls::new();
        for acl in &acls {
            index.insert(acl);
        }
        let gone = at.get(&acls);
        prop_assert!(index.remove(gone));
        let left: BTreeSet<Acl> = acls.iter().filter(|acl| *acl != gone).cloned().collect();
        prop_assert_eq!(index.iter().collect::<BTreeSet<_>>(), left.clone());
        prop_assert!(!index.remove(gone));
        prop_assert_eq!(index.len(), left.len());
        prop_assert_eq!(index.check(), Ok(()));
        // Not even where the index is built anew from what is left.
        let mut rebuilt = Acls::new();
        for acl in &left {
            rebuilt.insert(acl);
        }
        prop_assert_eq!(rebuilt, index);
    }

    #[test]
    fn a_filter_means_what_a_look_at_each_says(acls in vec(any_acl(), 0..24), filter in any_filter()) {
        let mut index = Acls::new();
        for acl in &acls {
            index.insert(acl);
        }
        let found: BTreeSet<Acl> = index.matching(&filter).collect();
        for acl in index.iter() {
            let name_fits = filter.name.as_ref().is_none_or(|name| match filter.pattern {
                PatternFilter::Match => is_about(&acl, acl.resource_type, name),
                _ => acl.name == *name,
            });
            let type_fits = match filter.pattern {
                PatternFilter::Of(pattern_type) => pattern_type == acl.pattern_type,
                _ => true,
            };
            let fits = name_fits
                && type_fits
                && filter.resource_type.is_none_or(|t| t == acl.resource_type)
                && filter.principal.as_ref().is_none_or(|p| *p == acl.principal)
                && filter.host.as_ref().is_none_or(|h| *h == acl.host)
                && filter.operation.is_none_or(|o| o == acl.operation)
                && filter.permission.is_none_or(|p| p == acl.permission);
            prop_assert_eq!(found.contains(&acl), fits, "{:?} {:?}", filter, acl);
        }
    }
}
