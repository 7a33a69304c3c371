//! What DescribeConfigs answers for a topic (KIP-133, synonyms by KIP-226, types by KIP-569).

use std::collections::BTreeMap;

use crate::topic_config::TOPIC_CONFIGS;
use crate::topic_defaults::TopicDefaults;
use crate::value::Kind;

/// Where a value comes from, with DescribeConfigs' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Topic,
    StaticBroker,
    Default,
}

impl ConfigSource {
    pub const fn wire_code(self) -> i8 {
        match self {
            ConfigSource::Topic => 1,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
        }
    }
}

/// A value that would hold if the stronger ones before it were taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: &'static str,
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// One setting in DescribeConfigs' terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: &'static str,
    /// None for a setting without a value, and always for a sensitive one.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub kind: Kind,
    pub sensitive: bool,
    pub read_only: bool,
    pub doc: &'static str,
    /// The strongest first; the first is the value in force.
    pub synonyms: Vec<ConfigSynonym>,
}

/// All configs of a topic with these overrides, by name.
pub fn describe_topic_configs(
    overrides: &BTreeMap<String, String>,
    defaults: &TopicDefaults,
) -> Vec<ConfigEntry> {
    let mut entries: Vec<ConfigEntry> = TOPIC_CONFIGS
        .iter()
        .map(|key| {
            let mut synonyms = Vec::with_capacity(3);
            if let Some(value) = overrides.get(key.name) {
                synonyms.push(ConfigSynonym {
                    name: key.name,
                    value: Some(value.clone()),
                    source: ConfigSource::Topic,
                });
            }
            if let Some(set) = defaults.broker_value(key) {
                synonyms.push(ConfigSynonym {
                    name: set.key,
                    value: Some(set.value.clone()),
                    source: ConfigSource::StaticBroker,
                });
            }
            // The strongest synonym stands for the default: it has the topic config's unit.
            synonyms.push(ConfigSynonym {
                name: key.synonyms.first().map_or(key.name, |s| s.key),
                value: Some(key.default.to_owned()),
                source: ConfigSource::Default,
            });
            ConfigEntry {
                name: key.name,
                value: synonyms[0].value.clone(),
                source: synonyms[0].source,
                kind: key.kind,
                sensitive: false,
                read_only: false,
                doc: key.doc,
                synonyms,
            }
        })
        .collect();
    entries.sort_by_key(|entry| entry.name);
    entries
}

#[cfg(test)]
mod tests {
    use tidemark_types::TopicId;

    use super::*;
    use crate::{MetadataImage, MetadataRecord};

    #[test]
    fn every_config_is_told_with_its_source() {
        let mut image = MetadataImage::empty();
        image.apply(&MetadataRecord::TopicCreated {
            name: "t".to_owned(),
            id: TopicId([1; 16]),
            partitions: 1,
            config: BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]),
        });
        let defaults = TopicDefaults::new(|key| match key {
            "log.retention.hours" => Some("1".to_owned()),
            "log.segment.bytes" => Some("2000000".to_owned()),
            _ => None,
        })
        .unwrap();
        let entries = describe_topic_configs(&image.topic("t").unwrap().config, &defaults);
        assert_eq!(entries.len(), TOPIC_CONFIGS.len());
        let entry = |name| entries.iter().find(|e| e.name == name).unwrap();

        let own = entry("retention.ms");
        assert_eq!(
            (own.value.as_deref(), own.source),
            (Some("5"), ConfigSource::Topic)
        );
        let chain: Vec<_> = own.synonyms.iter().map(|s| (s.name, s.source)).collect();
        assert_eq!(
            chain,
            [
                ("retention.ms", ConfigSource::Topic),
                ("log.retention.hours", ConfigSource::StaticBroker),
                ("log.retention.ms", ConfigSource::Default),
            ]
        );
        let broker = entry("segment.bytes");
        assert_eq!(broker.value.as_deref(), Some("2000000"));
        assert_eq!(broker.source, ConfigSource::StaticBroker);
        let default = entry("max.message.bytes");
        assert_eq!(default.value.as_deref(), Some("1048588"));
        assert_eq!(default.source, ConfigSource::Default);
        assert_eq!(default.synonyms.len(), 1);
    }
}
