//! The cluster, its configuration and its ACLs.

use anyhow::Result;
use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
};
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialDeletion;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterUserScramCredentialsRequest, ApiVersionsRequest, CreateAclsRequest,
    DeleteAclsRequest, DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, DescribeUserScramCredentialsRequest, IncrementalAlterConfigsRequest,
    MetadataRequest,
};

use super::Asked;
use super::world::{World, numbers, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// The node that every broker under question is.
const HERE: &str = "1";

pub(super) const ASKED: &[Asked] = &[
    Asked {
        key: 18,
        name: "ApiVersions v3",
        rights: &[],
        ask: api_versions,
    },
    Asked {
        key: 60,
        name: "DescribeCluster v1, with operations",
        rights: &[
            "Describe cluster",
            "Alter cluster, AlterConfigs cluster",
            "All cluster",
        ],
        ask: describe_cluster,
    },
    Asked {
        key: 3,
        name: "Metadata v10, with the cluster's operations",
        rights: &["Describe cluster", "Create cluster", "All cluster"],
        ask: cluster_operations,
    },
    Asked {
        key: 35,
        name: "DescribeLogDirs v4",
        rights: &["Describe cluster", "Alter cluster"],
        ask: |w| log_dirs(w, 4),
    },
    Asked {
        key: 35,
        name: "DescribeLogDirs v1",
        rights: &["Describe cluster"],
        ask: |w| log_dirs(w, 1),
    },
    Asked {
        key: 32,
        name: "DescribeConfigs v4 of a topic",
        rights: &[
            "DescribeConfigs topic",
            "AlterConfigs topic-",
            "Describe topic",
        ],
        ask: |w| describe_configs(w, TOPIC),
    },
    Asked {
        key: 32,
        name: "DescribeConfigs v4 of a broker",
        rights: &["DescribeConfigs cluster", "Describe cluster"],
        ask: |w| describe_configs(w, BROKER),
    },
    Asked {
        key: 33,
        name: "AlterConfigs v2 of a topic",
        rights: &["AlterConfigs topic", "Alter topic"],
        ask: |w| alter_configs(w, TOPIC),
    },
    Asked {
        key: 33,
        name: "AlterConfigs v2 of a broker",
        rights: &["AlterConfigs cluster", "Alter cluster"],
        ask: |w| alter_configs(w, BROKER),
    },
    Asked {
        key: 44,
        name: "IncrementalAlterConfigs v1 of a topic",
        rights: &["AlterConfigs topic", "Alter topic"],
        ask: |w| incremental_alter_configs(w, TOPIC),
    },
    Asked {
        key: 44,
        name: "IncrementalAlterConfigs v1 of a broker",
        rights: &["AlterConfigs cluster", "Alter cluster"],
        ask: |w| incremental_alter_configs(w, BROKER),
    },
    Asked {
        key: 50,
        name: "DescribeUserScramCredentials v0",
        rights: &["Describe cluster", "Alter cluster", "AlterConfigs cluster"],
        ask: describe_scram,
    },
    Asked {
        key: 51,
        name: "AlterUserScramCredentials v0",
        rights: &["Alter cluster", "Describe cluster"],
        ask: alter_scram,
    },
    Asked {
        key: 29,
        name: "DescribeAcls v3",
        rights: &["Describe cluster", "Alter cluster", "ClusterAction cluster"],
        ask: describe_acls,
    },
    Asked {
        key: 30,
        name: "CreateAcls v3",
        rights: &["Describe cluster", "Alter cluster"],
        ask: |w| create_acls(w, good_acl),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 without a principal's type",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_principal(text("alice"))),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 of no name",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_resource_name(text(""))),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 of another cluster",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_resource_type(4)),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 of an unknown operation",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_operation(99)),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 of an unknown resource type",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_resource_type(99)),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 of any operation",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_operation(1)),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 of any pattern",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_resource_pattern_type(2)),
    },
    Asked {
        key: 30,
        name: "CreateAcls v3 with a number for nothing",
        rights: &["Alter cluster"],
        ask: |w| create_acls(w, |w| good_acl(w).with_permission_type(0)),
    },
    Asked {
        key: 31,
        name: "DeleteAcls v3",
        rights: &["Describe cluster", "Alter cluster"],
        ask: |w| delete_acls(w, |filter| filter),
    },
    Asked {
        key: 31,
        name: "DeleteAcls v3 of an unknown pattern type",
        rights: &["Alter cluster"],
        ask: |w| delete_acls(w, |filter| filter.with_pattern_type_filter(99)),
    },
    Asked {
        key: 31,
        name: "DeleteAcls v3 with a number for nothing",
        rights: &["Alter cluster"],
        ask: |w| delete_acls(w, |filter| filter.with_operation(0)),
    },
];

fn api_versions(w: &mut World) -> Result<Vec<i64>> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("matrix"))
        .with_client_software_version(text("1"));
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| vec![a.error_code.into()])
}

fn describe_cluster(w: &mut World) -> Result<Vec<i64>> {
    let request = DescribeClusterRequest::default()
        .with_endpoint_type(1)
        .with_include_cluster_authorized_operations(true);
    let answer = w.ask(1, &request)?;
    numbers(answer, |a| {
        vec![
            a.error_code.into(),
            a.brokers.len() as i64,
            a.cluster_authorized_operations.into(),
        ]
    })
}

fn cluster_operations(w: &mut World) -> Result<Vec<i64>> {
    let request = MetadataRequest::default()
        .with_topics(Some(Vec::new()))
        .with_allow_auto_topic_creation(false)
        .with_include_cluster_authorized_operations(true);
    let answer = w.ask(10, &request)?;
    numbers(answer, |a| {
        vec![
            a.brokers.len() as i64,
            a.cluster_authorized_operations.into(),
        ]
    })
}

fn log_dirs(w: &mut World, version: i16) -> Result<Vec<i64>> {
    let request = DescribeLogDirsRequest::default().with_topics(None);
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| {
        vec![a.error_code.into(), a.results.len() as i64]
    })
}

fn describe_configs(w: &mut World, kind: i8) -> Result<Vec<i64>> {
    let (name, key) = match kind {
        TOPIC => (w.topic.clone(), "retention.ms"),
        _ => (HERE.to_owned(), "log.retention.ms"),
    };
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(&name))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = w.ask(4, &request)?;
    numbers(answer, |a| {
        let results = a.results.iter();
        results
            .flat_map(|r| [r.error_code.into(), r.configs.len() as i64])
            .collect()
    })
}

fn alter_configs(w: &mut World, kind: i8) -> Result<Vec<i64>> {
    let (name, key) = match kind {
        TOPIC => (w.topic.clone(), "retention.ms"),
        _ => (HERE.to_owned(), "log.retention.ms"),
    };
    let config = ReplacedConfig::default()
        .with_name(text(key))
        .with_value(Some(text("86400000")));
    let resource = ReplacedResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(&name))
        .with_configs(vec![config]);
    let request = AlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(true);
    let answer = w.ask(2, &request)?;
    numbers(answer, |a| {
        a.responses.iter().map(|r| r.error_code.into()).collect()
    })
}

fn incremental_alter_configs(w: &mut World, kind: i8) -> Result<Vec<i64>> {
    let (name, key) = match kind {
        TOPIC => (w.topic.clone(), "retention.ms"),
        _ => (HERE.to_owned(), "log.retention.ms"),
    };
    let config = AlterableConfig::default()
        .with_name(text(key))
        .with_config_operation(0)
        .with_value(Some(text("86400000")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(&name))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(true);
    let answer = w.ask(1, &request)?;
    numbers(answer, |a| {
        a.responses.iter().map(|r| r.error_code.into()).collect()
    })
}

/// The code of the whole, then each user's.
fn describe_scram(w: &mut World) -> Result<Vec<i64>> {
    let user = UserName::default().with_name(text("nobody"));
    let request = DescribeUserScramCredentialsRequest::default().with_users(Some(vec![user]));
    let answer = w.ask(0, &request)?;
    numbers(answer, |a| {
        let results = a.results.iter().map(|r| r.error_code.into());
        std::iter::once(a.error_code.into())
            .chain(results)
            .collect()
    })
}

/// Of a user that is not there.
fn alter_scram(w: &mut World) -> Result<Vec<i64>> {
    let deletion = ScramCredentialDeletion::default()
        .with_name(text("nobody"))
        .with_mechanism(1);
    let request = AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
    let answer = w.ask(0, &request)?;
    numbers(answer, |a| {
        a.results.iter().map(|r| r.error_code.into()).collect()
    })
}

fn describe_acls(w: &mut World) -> Result<Vec<i64>> {
    let request = DescribeAclsRequest::default()
        .with_resource_type_filter(2)
        .with_resource_name_filter(Some(text(&w.topic)))
        .with_pattern_type_filter(3)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        vec![a.error_code.into(), a.resources.len() as i64]
    })
}

/// Of nobody who takes part.
fn good_acl(w: &World) -> AclCreation {
    AclCreation::default()
        .with_resource_type(2)
        .with_resource_name(text(&w.topic))
        .with_resource_pattern_type(3)
        .with_principal(text("User:nobody"))
        .with_host(text("10.9.8.7"))
        .with_operation(3)
        .with_permission_type(3)
}

fn create_acls(w: &mut World, acl: impl Fn(&World) -> AclCreation) -> Result<Vec<i64>> {
    let request = CreateAclsRequest::default().with_creations(vec![acl(w)]);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        a.results.iter().map(|r| r.error_code.into()).collect()
    })
}

fn delete_acls(
    w: &mut World,
    change: impl Fn(DeleteAclsFilter) -> DeleteAclsFilter,
) -> Result<Vec<i64>> {
    let filter = DeleteAclsFilter::default()
        .with_resource_type_filter(2)
        .with_resource_name_filter(Some(text(&w.topic)))
        .with_pattern_type_filter(3)
        .with_principal_filter(Some(text("User:nobody")))
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1);
    let request = DeleteAclsRequest::default().with_filters(vec![change(filter)]);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        let results = a.filter_results.iter();
        results
            .flat_map(|r| [r.error_code.into(), r.matching_acls.len() as i64])
            .collect()
    })
}
