//! DescribeConfigs (32), v1-v4: every setting of a topic or of this broker, with its source.
//!
//! v1 synonyms and sources (KIP-226); v3 types and documentation (KIP-569); v4 flexible.
//! DescribeConfigs on each topic, or on the cluster for a broker's.

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
    DescribeConfigsSynonym,
};
use tidemark_authorizer::Operation;
use tidemark_metadata::{
    ConfigEntry, describe_every_broker, describe_topic_configs, overlay_dynamic,
    validate_topic_name,
};
use tidemark_types::{CLUSTER_METADATA, ErrorCode};

use crate::authorize::{Resource, Rights};

use super::{Cx, Pending, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

pub(crate) fn handle(cx: &Cx, request: &DescribeConfigsRequest) -> Pending {
    let rights = cx.rights();
    let results = request
        .resources
        .iter()
        .map(|resource| {
            let answer = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match permit(&rights, resource).and_then(|()| find(cx, resource)) {
                Err((error, message)) => answer
                    .with_error_code(error.code())
                    .with_error_message(Some(text(&message))),
                Ok(entries) => answer.with_configs(
                    entries
                        .into_iter()
                        .filter(|entry| {
                            // No names, null or none, is every setting.
                            let wanted = resource.configuration_keys.as_deref().unwrap_or_default();
                            wanted.is_empty() || wanted.iter().any(|k| &**k == entry.name)
                        })
                        .map(|entry| respond(cx.version(), request, entry))
                        .collect(),
                ),
            }
        })
        .collect();
    Pending::Ready(cx.answer(&DescribeConfigsResponse::default().with_results(results)))
}

fn permit(rights: &Rights<'_>, asked: &DescribeConfigsResource) -> Result<(), (ErrorCode, String)> {
    let (resource, error, message) = match asked.resource_type {
        TOPIC => (
            Resource::Topic(&asked.resource_name),
            ErrorCode::TopicAuthorizationFailed,
            "Topic authorization failed.",
        ),
        BROKER => (
            Resource::Cluster,
            ErrorCode::ClusterAuthorizationFailed,
            "Cluster authorization failed.",
        ),
        // There is none of another kind.
        _ => return Ok(()),
    };
    match rights.may(Operation::DescribeConfigs, resource) {
        true => Ok(()),
        false => Err((error, message.to_owned())),
    }
}

fn find(
    cx: &Cx,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, (ErrorCode, String)> {
    let name = &*resource.resource_name;
    match resource.resource_type {
        TOPIC => {
            validate_topic_name(name).map_err(|why| (ErrorCode::InvalidTopicException, why))?;
            let view = cx.shared.read();
            let image = &view.image;
            let topic = image
                .topic(name)
                .filter(|_| name != CLUSTER_METADATA)
                .ok_or_else(|| {
                    let message = "This server does not host this topic-partition.".to_owned();
                    (ErrorCode::UnknownTopicOrPartition, message)
                })?;
            Ok(describe_topic_configs(&topic.config, &view.defaults))
        }
        // The empty name is the default of all brokers.
        BROKER if name.is_empty() => Ok(describe_every_broker(&cx.shared.read().image)),
        BROKER if name == cx.shared.settings.node_id.to_string() => {
            let mut entries = cx.shared.settings.describe_broker_configs();
            overlay_dynamic(&mut entries, &cx.shared.read().image);
            Ok(entries)
        }
        BROKER if name.parse::<i32>().is_err() => Err((
            ErrorCode::InvalidRequest,
            format!("Broker id must be an integer, but it is: {name}"),
        )),
        BROKER => Err((
            ErrorCode::InvalidRequest,
            format!(
                "Unexpected broker id, expected {} or empty string, but received {name}",
                cx.shared.settings.node_id
            ),
        )),
        other => Err((
            ErrorCode::InvalidRequest,
            format!("Unsupported resource type: {other}"),
        )),
    }
}

fn respond(
    version: i16,
    request: &DescribeConfigsRequest,
    entry: ConfigEntry,
) -> DescribeConfigsResourceResult {
    let synonyms = match request.include_synonyms {
        false => Vec::new(),
        true => entry
            .synonyms
            .iter()
            .map(|synonym| {
                DescribeConfigsSynonym::default()
                    .with_name(text(synonym.name))
                    .with_value(synonym.value.as_deref().map(text))
                    .with_source(synonym.source.wire_code())
            })
            .collect(),
    };
    let answer = DescribeConfigsResourceResult::default()
        .with_name(text(entry.name))
        .with_value(entry.value.as_deref().map(text))
        .with_read_only(entry.read_only)
        .with_config_source(entry.source.wire_code())
        .with_is_sensitive(entry.sensitive)
        .with_synonyms(synonyms);
    match version {
        3.. => answer
            .with_config_type(entry.kind.wire_code())
            .with_documentation(request.include_documentation.then(|| text(entry.doc))),
        _ => answer,
    }
}
