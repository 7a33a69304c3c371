//! IncrementalAlterConfigs (44), v0-v1: changes to single configs of topics and brokers (KIP-339).
//!
//! v1 flexible. AlterConfigs on each topic, or on the cluster. Of a broker those settings can change that are the defaults of topic configs.

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use tidemark_metadata::{ConfigChange, Refusal};
use tidemark_owner::Alteration;
use tidemark_types::ErrorCode;

use super::config_resources::{Asked, Named, alter};
use super::{Cx, Pending};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub(crate) async fn handle(cx: Cx, request: IncrementalAlterConfigsRequest) -> Pending {
    let resources = request.resources.iter().map(resource).collect();
    alter(cx, resources, request.validate_only, move |cx, results| {
        let responses = request
            .resources
            .into_iter()
            .zip(results)
            .map(|(resource, altered)| {
                AlterConfigsResourceResponse::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name)
                    .with_error_code(altered.error_code)
                    .with_error_message(altered.error_message)
            })
            .collect();
        cx.answer(&IncrementalAlterConfigsResponse::default().with_responses(responses))
    })
    .await
}

fn resource(asked: &AlterConfigsResource) -> Asked {
    let changes: Result<Vec<_>, Refusal> = asked.configs.iter().map(change).collect();
    Asked {
        kind: asked.resource_type,
        name: asked.resource_name.to_string(),
        configs: (asked.configs.iter())
            .map(|config| Named {
                name: config.name.to_string(),
                lacks_value: config.value.is_none() && config.config_operation != DELETE,
            })
            .collect(),
        alteration: changes.map(Alteration::Changes),
    }
}

fn change(config: &AlterableConfig) -> Result<(String, ConfigChange), Refusal> {
    let value = config.value.as_deref().unwrap_or_default().to_owned();
    let change = match config.config_operation {
        SET => ConfigChange::Set(value),
        DELETE => ConfigChange::Delete,
        APPEND => ConfigChange::Append(value),
        SUBTRACT => ConfigChange::Subtract(value),
        other => {
            let message = format!("Unknown operation {other} on {}", &*config.name);
            return Err((ErrorCode::InvalidRequest, message));
        }
    };
    Ok((config.name.to_string(), change))
}
