//! Kafka's rules, one at a time.

use std::net::IpAddr;
use std::sync::Arc;

use tidemark_authorizer::{
    Acl, Acls, Action, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType, Rules,
    Verdict, parse_super_users,
};

const HERE: &str = "127.0.0.1";

fn acl(text: &str) -> Acl {
    let words: Vec<&str> = text.split(' ').collect();
    let [
        permission,
        principal,
        operation,
        resource_type,
        pattern_type,
        name,
    ] = words[..]
    else {
        panic!("{text}");
    };
    fn word<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> T {
        *all.iter().find(|t| name(**t) == text).unwrap()
    }
    Acl {
        resource_type: word(ResourceType::ALL, ResourceType::name, resource_type),
        name: Arc::from(name),
        pattern_type: word(PatternType::ALL, PatternType::name, pattern_type),
        principal: Arc::from(format!("User:{principal}")),
        host: Arc::from("*"),
        operation: word(Operation::ALL, Operation::name, operation),
        permission: word(Permission::ALL, Permission::name, permission),
    }
}

fn acls(texts: &[&str]) -> Acls {
    let mut acls = Acls::new();
    for text in texts {
        assert!(acls.insert(&acl(text)), "{text} twice");
    }
    acls
}

fn verdict(acls: &Acls, who: &str, operation: Operation, topic: &str) -> Verdict {
    verdict_from(acls, who, HERE, operation, topic)
}

fn verdict_from(acls: &Acls, who: &str, host: &str, operation: Operation, topic: &str) -> Verdict {
    Rules::default().decide(
        acls,
        &Action {
            principal: &format!("User:{who}"),
            host: host.parse().unwrap(),
            operation,
            resource_type: ResourceType::Topic,
            name: topic,
        },
    )
}

#[test]
fn what_nothing_allows_is_not_allowed() {
    let acls = acls(&["Allow alice Read Topic Literal orders"]);
    let verdict = |who, operation, topic| verdict(&acls, who, operation, topic);
    assert_eq!(
        verdict("alice", Operation::Read, "orders"),
        Verdict::AllowedByAcl
    );
    assert_eq!(
        verdict("alice", Operation::Write, "orders"),
        Verdict::NotAllowed
    );
    assert_eq!(
        verdict("bob", Operation::Read, "orders"),
        Verdict::NotAllowed
    );
    assert_eq!(
        verdict("alice", Operation::Read, "orders2"),
        Verdict::NotAllowed
    );
}

#[test]
fn what_denies_wins_over_whatever_allows() {
    let acls = acls(&[
        "Allow alice All Topic Literal *",
        "Allow * Read Topic Prefixed order",
        "Deny alice Read Topic Prefixed orders-",
        "Deny * Write Topic Literal orders-eu",
    ]);
    let verdict = |who, operation, topic| verdict(&acls, who, operation, topic);
    assert_eq!(
        verdict("alice", Operation::Read, "orders-eu"),
        Verdict::DeniedByAcl
    );
    assert_eq!(
        verdict("alice", Operation::Write, "orders-eu"),
        Verdict::DeniedByAcl
    );
    assert_eq!(
        verdict("alice", Operation::Read, "orders"),
        Verdict::AllowedByAcl
    );
    assert_eq!(
        verdict("bob", Operation::Read, "orders-eu"),
        Verdict::AllowedByAcl
    );
    // A denial to read takes the right to describe from nobody.
    assert_eq!(
        verdict("alice", Operation::Describe, "orders-eu"),
        Verdict::AllowedByAcl
    );
}

#[test]
fn to_read_write_delete_or_alter_is_to_describe() {
    for operation in ["Read", "Write", "Delete", "Alter", "Describe", "All"] {
        let acls = acls(&[&format!("Allow alice {operation} Topic Literal t")]);
        assert!(
            verdict(&acls, "alice", Operation::Describe, "t").is_allowed(),
            "{operation}"
        );
    }
    for operation in ["Create", "AlterConfigs", "DescribeConfigs"] {
        let acls = acls(&[&format!("Allow alice {operation} Topic Literal t")]);
        assert!(
            !verdict(&acls, "alice", Operation::Describe, "t").is_allowed(),
            "{operation}"
        );
    }
    let configs = acls(&["Allow alice AlterConfigs Topic Literal t"]);
    assert!(verdict(&configs, "alice", Operation::DescribeConfigs, "t").is_allowed());
}

#[test]
fn an_address_is_an_address_however_it_is_written() {
    let mut all = Acls::new();
    for host in ["10.0.0.1", "0:0:0:0:0:0:0:1"] {
        let host = Arc::from(host);
        all.insert(&Acl {
            host,
            ..acl("Allow alice Read Topic Literal t")
        });
    }
    let allowed = |host| verdict_from(&all, "alice", host, Operation::Read, "t").is_allowed();
    assert!(allowed("10.0.0.1") && allowed("::ffff:10.0.0.1") && allowed("::1"));
    assert!(!allowed("10.0.0.2") && !allowed("::2"));
}

#[test]
fn super_users_may_whatever_the_acls_say() {
    let acls = acls(&["Deny * All Topic Literal *"]);
    let rules = Rules {
        super_users: parse_super_users("User:root; User:CN=admin,O=x ;").unwrap(),
        allow_everyone_if_no_acl_found: false,
    };
    let decide = |principal| {
        let host = HERE.parse().unwrap();
        let (operation, resource_type, name) = (Operation::Write, ResourceType::Topic, "t");
        rules.decide(
            &acls,
            &Action {
                principal,
                host,
                operation,
                resource_type,
                name,
            },
        )
    };
    assert_eq!(decide("User:root"), Verdict::SuperUser);
    assert_eq!(decide("User:CN=admin,O=x"), Verdict::SuperUser);
    assert_eq!(decide("User:rooty"), Verdict::DeniedByAcl);
    // Everybody is everybody, of whatever type.
    assert_eq!(decide("Group:root"), Verdict::DeniedByAcl);
    assert_eq!(parse_super_users("User:a;root"), Err("root".to_owned()));
    assert_eq!(parse_super_users("User:"), Err("User:".to_owned()));
    assert_eq!(parse_super_users("").unwrap().len(), 0);
}

#[test]
fn everyone_may_where_no_acl_is_found_if_the_setting_says_so() {
    let acls = acls(&["Allow alice Read Topic Prefixed orders"]);
    let rules = Rules {
        allow_everyone_if_no_acl_found: true,
        ..Rules::default()
    };
    let decide = |name| {
        let (principal, host) = ("User:bob", HERE.parse().unwrap());
        let (operation, resource_type) = (Operation::Read, ResourceType::Topic);
        rules.decide(
            &acls,
            &Action {
                principal,
                host,
                operation,
                resource_type,
                name,
            },
        )
    };
    assert_eq!(decide("free"), Verdict::NoAcl { allowed: true });
    assert_eq!(decide("orders-eu"), Verdict::NotAllowed);
}

/// Who may write any topic may be an idempotent producer.
#[test]
fn a_right_to_some_resource_counts_unless_all_of_it_is_denied() {
    let may = |texts: &[&str]| {
        let host: IpAddr = HERE.parse().unwrap();
        let (operation, kind) = (Operation::Write, ResourceType::Topic);
        Rules::default().may_somewhere(&acls(texts), "User:alice", host, operation, kind)
    };
    assert!(!may(&[]));
    assert!(may(&["Allow alice Write Topic Literal t"]));
    assert!(may(&["Allow * All Topic Prefixed t"]));
    assert!(!may(&["Allow bob Write Topic Literal t"]));
    assert!(!may(&["Allow alice Read Topic Literal t"]));
    assert!(!may(&["Allow alice Write Group Literal t"]));
    assert!(!may(&[
        "Allow alice Write Topic Literal t",
        "Deny alice Write Topic Literal t"
    ]));
    assert!(!may(&[
        "Allow alice Write Topic Literal t-1",
        "Deny * Write Topic Prefixed t"
    ]));
    assert!(!may(&[
        "Allow alice Write Topic Prefixed t-1",
        "Deny alice All Topic Prefixed t"
    ]));
    assert!(!may(&[
        "Allow alice Write Topic Literal *",
        "Deny * Write Topic Literal *"
    ]));
    assert!(may(&[
        "Allow alice Write Topic Prefixed t",
        "Deny alice Write Topic Literal t"
    ]));
    assert!(may(&[
        "Allow alice Write Topic Prefixed t",
        "Deny alice Write Topic Prefixed t-1"
    ]));
    assert!(may(&[
        "Allow alice Write Topic Literal *",
        "Deny alice Write Topic Prefixed t"
    ]));
}

/// A check must not cost what the number of ACLs is.
#[test]
fn ten_thousand_acls_are_not_looked_through() {
    let mut all = Acls::new();
    for n in 0..10_000 {
        let kind = ["Literal", "Prefixed"][n % 2];
        let principal = n % 100;
        all.insert(&acl(&format!(
            "Allow user{principal} Read Topic {kind} topic-{n:05}-"
        )));
    }
    assert_eq!(all.len(), 10_000);
    assert!(verdict(&all, "user17", Operation::Read, "topic-00017-x").is_allowed());
    assert!(!verdict(&all, "user18", Operation::Read, "topic-00017-x").is_allowed());
    assert!(verdict(&all, "user18", Operation::Read, "topic-00018-").is_allowed());
    assert!(!verdict(&all, "user18", Operation::Read, "topic-00018-x").is_allowed());
    assert_eq!(all.check(), Ok(()));
}

#[test]
fn numbers_are_kafkas() {
    let codes: Vec<u8> = ResourceType::ALL.iter().map(|t| t.code()).collect();
    assert_eq!(codes, [2, 3, 4, 5, 6, 7]);
    let codes: Vec<u8> = Operation::ALL.iter().map(|t| t.code()).collect();
    assert_eq!(codes, (2..=15).collect::<Vec<u8>>());
    for code in 0..=u8::MAX {
        assert_eq!(
            Operation::from_code(code).is_some(),
            (2..=15).contains(&code)
        );
        assert_eq!(
            PatternType::from_code(code).is_some(),
            matches!(code, 3 | 4)
        );
        assert_eq!(Permission::from_code(code).is_some(), matches!(code, 2 | 3));
        assert_eq!(
            ResourceType::from_code(code).is_some(),
            (2..=7).contains(&code)
        );
    }
    assert_eq!(CLUSTER_NAME, "kafka-cluster");
}
