//! IncrementalAlterConfigs and AlterConfigs, of topics and of brokers. They are in force with the
//! record: a batch that is checked after the answer is checked by the new configuration.

use tidemark_metadata::{ConfigChange, MetadataRecord, Refusal};
use tidemark_types::{ErrorCode, NodeId};

use crate::Owner;
use crate::command::{Now, Step};
use crate::commands::exclusive::{Cuts, ExclusiveOperation};

/// Whose configs are altered.
#[derive(Clone, Debug)]
pub enum ConfigResource {
    Topic(String),
    /// The dynamic settings of a broker, or with `None` of every broker.
    Broker(Option<NodeId>),
}

/// What happens to one resource's own configs.
#[derive(Clone, Debug)]
pub struct AlterResource {
    pub resource: ConfigResource,
    pub alteration: Alteration,
}

#[derive(Clone, Debug)]
pub enum Alteration {
    /// IncrementalAlterConfigs: what is not named stays. Each config is named at most once.
    Changes(Vec<(String, ConfigChange)>),
    /// AlterConfigs: what is not named goes back to its default.
    Replacement(Vec<(String, String)>),
}

/// Each resource is named at most once.
#[derive(Clone, Debug)]
pub struct AlterConfigs {
    pub resources: Vec<AlterResource>,
    pub validate_only: bool,
}

impl Owner {
    /// One result per resource, in the order of the request: a refused one does not hold up the
    /// others.
    pub(crate) fn alter_configs(
        &mut self,
        request: AlterConfigs,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Result<(), Refusal>> {
        let mut draft = self.begin(now);
        let mut cuts = Cuts::default();
        let altered = request
            .resources
            .iter()
            .map(|resource| {
                let records = self.decide_alter(resource)?;
                if records.is_empty() || request.validate_only {
                    return Ok(());
                }
                if !self.has_room_for(&draft, cuts.bytes(), &records) {
                    let message = "the configuration does not fit one journal record with what \
                                   stands before it in the request";
                    return Err((ErrorCode::InvalidRequest, message.to_owned()));
                }
                if let Some((name, record)) = self.changed_policy(resource, &records) {
                    let operation = ExclusiveOperation::CleanupPolicy;
                    self.cut_topic(&mut cuts, operation, name, &draft, record)?;
                }
                self.append_metadata(&mut draft, &records);
                Ok(())
            })
            .collect();
        self.cut_through(&mut draft, cuts, now, step);
        self.finish(draft, step);
        altered
    }

    /// The topic whose `cleanup.policy` these records change, where that is exclusive. What counts
    /// is what is in force: to write down what was in force already cuts through nobody.
    fn changed_policy<'a>(
        &self,
        resource: &'a AlterResource,
        records: &'a [MetadataRecord],
    ) -> Option<(&'a str, &'a MetadataRecord)> {
        let ConfigResource::Topic(name) = &resource.resource else {
            return None;
        };
        let record = records.first()?;
        let MetadataRecord::TopicConfigSet { config, .. } = record else {
            return None;
        };
        if !self.options.exclusive.cleanup_policy {
            return None;
        }
        let topic = self.metadata.topic(name)?;
        let defaults = self.metadata.topic_defaults(&self.options.topic_defaults);
        let before = topic.resolve(&defaults).cleanup_policy;
        let after = defaults.resolve(config).cleanup_policy;
        (after != before).then_some((name, record))
    }

    fn decide_alter(&self, resource: &AlterResource) -> Result<Vec<MetadataRecord>, Refusal> {
        let metadata = &self.metadata;
        let limits = &self.options.topics;
        match (&resource.resource, &resource.alteration) {
            (ConfigResource::Topic(name), Alteration::Changes(changes)) => metadata
                .decide_alter_topic_config(name, changes, limits)
                .map(|record| record.into_iter().collect()),
            (ConfigResource::Topic(name), Alteration::Replacement(configs)) => metadata
                .decide_replace_topic_config(name, configs, limits)
                .map(|record| record.into_iter().collect()),
            (ConfigResource::Broker(node), Alteration::Changes(changes)) => {
                metadata.decide_alter_broker_config(*node, changes)
            }
            (ConfigResource::Broker(node), Alteration::Replacement(configs)) => {
                metadata.decide_replace_broker_config(*node, configs)
            }
        }
    }
}
