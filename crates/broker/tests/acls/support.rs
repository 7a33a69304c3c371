//! A broker with an authorizer, and its ACLs in few words.

use std::fmt::Debug;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};
use tidemark_testkit::requests::{error_code, text};
use tidemark_testkit::{RawClient, StoppedBroker, TestBroker};
use tidemark_types::ErrorCode;

pub const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// Not started: `User:admin` may do everything, others what ACLs allow.
pub fn guarded() -> StoppedBroker {
    TestBroker::builder()
        .set("authorizer.class.name", STANDARD)
        .set("super.users", "User:admin")
}

pub async fn admin(broker: &TestBroker) -> RawClient {
    broker.client_as("User:admin")
}

fn code(words: &[(&str, i8)], word: &str) -> i8 {
    let found = words.iter().find(|(name, _)| *name == word);
    found.unwrap_or_else(|| panic!("{word} in {words:?}")).1
}

const PERMISSIONS: &[(&str, i8)] = &[("any", 1), ("deny", 2), ("allow", 3)];
const OPERATIONS: &[(&str, i8)] = &[
    ("any", 1),
    ("All", 2),
    ("Read", 3),
    ("Write", 4),
    ("Create", 5),
    ("Delete", 6),
    ("Alter", 7),
    ("Describe", 8),
    ("ClusterAction", 9),
    ("DescribeConfigs", 10),
    ("AlterConfigs", 11),
    ("IdempotentWrite", 12),
];
const TYPES: &[(&str, i8)] = &[
    ("any", 1),
    ("topic", 2),
    ("group", 3),
    ("cluster", 4),
    ("txn", 5),
    ("user", 7),
];
const PATTERNS: &[(&str, i8)] = &[("any", 1), ("match", 2), ("literal", 3), ("prefixed", 4)];

/// `allow alice Write topic literal orders`, perhaps with a host behind.
pub fn creation(words: &str) -> AclCreation {
    let words: Vec<&str> = words.split(' ').collect();
    let host = words.get(6).copied().unwrap_or("*");
    let [permission, user, operation, kind, pattern, name] = words[..6] else {
        panic!("{words:?}");
    };
    AclCreation::default()
        .with_resource_type(code(TYPES, kind))
        .with_resource_name(text(name))
        .with_resource_pattern_type(code(PATTERNS, pattern))
        .with_principal(text(&format!("User:{user}")))
        .with_host(text(host))
        .with_operation(code(OPERATIONS, operation))
        .with_permission_type(code(PERMISSIONS, permission))
}

pub fn create(acls: &[&str]) -> CreateAclsRequest {
    let creations = acls.iter().map(|words| creation(words));
    CreateAclsRequest::default().with_creations(creations.collect())
}

/// Makes ACLs, which must succeed.
pub async fn allow(client: &mut RawClient, acls: &[&str]) {
    let response = client.send(3, &create(acls)).await;
    assert_eq!(response.results.len(), acls.len());
    for (result, acl) in response.results.iter().zip(acls) {
        assert_eq!(result.error_code, 0, "{acl}: {:?}", result.error_message);
    }
}

/// `allow alice Write topic literal orders`, each word perhaps `any`.
pub fn filter(words: &str) -> DeleteAclsFilter {
    let words: Vec<&str> = words.split(' ').collect();
    let [permission, user, operation, kind, pattern, name] = words[..] else {
        panic!("{words:?}");
    };
    let named = |word: &str, value: String| (word != "any").then(|| text(&value));
    DeleteAclsFilter::default()
        .with_resource_type_filter(code(TYPES, kind))
        .with_resource_name_filter(named(name, name.to_owned()))
        .with_pattern_type_filter(code(PATTERNS, pattern))
        .with_principal_filter(named(user, format!("User:{user}")))
        .with_host_filter(None)
        .with_operation(code(OPERATIONS, operation))
        .with_permission_type(code(PERMISSIONS, permission))
}

pub fn delete(filters: &[&str]) -> DeleteAclsRequest {
    let filters = filters.iter().map(|words| filter(words));
    DeleteAclsRequest::default().with_filters(filters.collect())
}

pub fn describe(words: &str) -> DescribeAclsRequest {
    let filter = filter(words);
    DescribeAclsRequest::default()
        .with_resource_type_filter(filter.resource_type_filter)
        .with_resource_name_filter(filter.resource_name_filter)
        .with_pattern_type_filter(filter.pattern_type_filter)
        .with_principal_filter(filter.principal_filter)
        .with_host_filter(None)
        .with_operation(filter.operation)
        .with_permission_type(filter.permission_type)
}

pub const EVERY: &str = "any any any any any any";

/// Every ACL that a filter means, in the words of [`creation`].
pub async fn described(client: &mut RawClient, version: i16, words: &str) -> Vec<String> {
    let response = client.send(version, &describe(words)).await;
    assert_eq!(response.error_code, 0, "{:?}", response.error_message);
    let word = |words: &[(&'static str, i8)], code: i8| {
        words
            .iter()
            .find(|(_, c)| *c == code)
            .expect("a number of Kafka's")
            .0
    };
    let mut all: Vec<String> = (response.resources.iter())
        .flat_map(|resource| {
            resource.acls.iter().map(move |acl| {
                format!(
                    "{} {} {} {} {} {}{}",
                    word(PERMISSIONS, acl.permission_type),
                    acl.principal.strip_prefix("User:").expect("a user"),
                    word(OPERATIONS, acl.operation),
                    word(TYPES, resource.resource_type),
                    word(PATTERNS, resource.pattern_type),
                    &*resource.resource_name,
                    match &*acl.host {
                        "*" => String::new(),
                        host => format!(" {host}"),
                    }
                )
            })
        })
        .collect();
    all.sort();
    all
}

pub fn is<T: Debug>(result: Result<T, ErrorCode>, code: ErrorCode) {
    assert_eq!(result.map(|_| ErrorCode::None).unwrap_or_else(|e| e), code);
}

pub fn code_of(code: i16) -> ErrorCode {
    error_code(code)
}
