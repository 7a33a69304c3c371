//! IncrementalAlterConfigs and AlterConfigs of topics. They are in force with the record: a batch
//! that is checked after the answer is checked by the new configuration.

use tidemark_metadata::{ConfigChange, Refusal};
use tidemark_types::ErrorCode;

use crate::Owner;
use crate::command::{Now, Step};

/// What happens to one topic's own configs.
#[derive(Clone, Debug)]
pub struct AlterTopic {
    pub name: String,
    pub alteration: Alteration,
}

#[derive(Clone, Debug)]
pub enum Alteration {
    /// IncrementalAlterConfigs: what is not named stays. Each config is named at most once.
    Changes(Vec<(String, ConfigChange)>),
    /// AlterConfigs: what is not named goes back to its default.
    Replacement(Vec<(String, String)>),
}

/// Each topic is named at most once.
#[derive(Clone, Debug)]
pub struct AlterConfigs {
    pub topics: Vec<AlterTopic>,
    pub validate_only: bool,
}

impl Owner {
    /// One result per topic, in the order of the request: a refused one does not hold up the others.
    pub(crate) fn alter_configs(
        &mut self,
        request: AlterConfigs,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Result<(), Refusal>> {
        let mut draft = self.begin(now);
        let altered = request
            .topics
            .iter()
            .map(|topic| {
                let record = match &topic.alteration {
                    Alteration::Changes(changes) => self
                        .metadata
                        .decide_alter_topic_config(&topic.name, changes),
                    Alteration::Replacement(configs) => self
                        .metadata
                        .decide_replace_topic_config(&topic.name, configs),
                }?;
                let Some(record) = record.filter(|_| !request.validate_only) else {
                    return Ok(());
                };
                if !self.has_room_for(&draft, &record) {
                    let message = "the topic's configuration does not fit one journal record with \
                                   what stands before it in the request";
                    return Err((ErrorCode::InvalidRequest, message.to_owned()));
                }
                self.append_metadata(&mut draft, &[record]);
                Ok(())
            })
            .collect();
        self.finish(draft, step);
        altered
    }
}
