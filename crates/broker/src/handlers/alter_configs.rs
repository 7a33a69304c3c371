//! AlterConfigs (33), v0-v2: a topic's or broker's whole set of own configs. What is not named goes
//! back to its default, which is why clients have IncrementalAlterConfigs since.
//!
//! v1 throttling; v2 flexible. AlterConfigs on each topic, or on the cluster.

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use tidemark_owner::Alteration;

use super::config_resources::{Asked, Named, alter};
use super::{Cx, Pending};

pub(crate) async fn handle(cx: Cx, request: AlterConfigsRequest) -> Pending {
    let resources = request
        .resources
        .iter()
        .map(|asked| {
            let configs = asked.configs.iter().map(|config| {
                let value = config.value.as_deref().unwrap_or_default();
                (config.name.to_string(), value.to_owned())
            });
            Asked {
                kind: asked.resource_type,
                name: asked.resource_name.to_string(),
                alteration: Ok(Alteration::Replacement(configs.collect())),
                configs: (asked.configs.iter())
                    .map(|config| Named {
                        name: config.name.to_string(),
                        lacks_value: config.value.is_none(),
                    })
                    .collect(),
            }
        })
        .collect();
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
        cx.answer(&AlterConfigsResponse::default().with_responses(responses))
    })
    .await
}
