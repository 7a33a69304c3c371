//! What DescribeConfigs answers for a topic (KIP-133, synonyms by KIP-226, types by KIP-569).

use std::collections::BTreeMap;

use crate::image::MetadataImage;
use crate::topic_config::{TOPIC_CONFIGS, TopicConfigKey, dynamic_broker_key};
use crate::topic_defaults::TopicDefaults;
use crate::value::Kind;

/// Where a value comes from, with DescribeConfigs' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Topic,
    DynamicBroker,
    DynamicDefaultBroker,
    StaticBroker,
    Default,
}

impl ConfigSource {
    pub const fn wire_code(self) -> i8 {
        match self {
            ConfigSource::Topic => 1,
            ConfigSource::DynamicBroker => 2,
            ConfigSource::DynamicDefaultBroker => 3,
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
    /// The strongest first; the first is the value in force. None where the default is the topic
    /// config's own.
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
            for (source, value) in defaults.dynamic_values(key) {
                synonyms.push(ConfigSynonym {
                    name: key.dynamic_synonym().unwrap_or(key.name),
                    value: Some(value.clone()),
                    source: *source,
                });
            }
            if let Some(set) = defaults.broker_value(key) {
                synonyms.push(ConfigSynonym {
                    name: set.key,
                    value: Some(set.value.clone()),
                    source: ConfigSource::StaticBroker,
                });
            }
            let (value, source) = match synonyms.first() {
                Some(strongest) => (strongest.value.clone(), strongest.source),
                None => (Some(key.default.to_owned()), ConfigSource::Default),
            };
            synonyms.extend(default_synonym(key));
            ConfigEntry {
                name: key.name,
                value,
                source,
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

/// The broker setting that a default comes from, as Kafka tells it: of several that stand for each
/// other the strongest has no default to tell, except that `log.roll.ms` knows of the hours.
fn default_synonym(key: &TopicConfigKey) -> Option<ConfigSynonym> {
    let (name, value) = match key.synonyms {
        [only] => (only.key, key.default),
        [_, hours] if key.name == "segment.ms" => (hours.key, "168"),
        _ => return None,
    };
    Some(ConfigSynonym {
        name,
        value: Some(value.to_owned()),
        source: ConfigSource::Default,
    })
}

/// Puts this broker's dynamic settings over those that it was started with.
pub fn overlay_dynamic(entries: &mut [ConfigEntry], image: &MetadataImage) {
    let sources = [
        (None, ConfigSource::DynamicDefaultBroker),
        (Some(image.node_id()), ConfigSource::DynamicBroker),
    ];
    for entry in entries {
        // The weaker first: each goes before what is there.
        for (node, source) in sources {
            let Some(value) = image.broker_config(node).get(entry.name) else {
                continue;
            };
            let synonym = ConfigSynonym {
                name: entry.name,
                value: Some(value.clone()),
                source,
            };
            entry.value.clone_from(&synonym.value);
            entry.source = source;
            entry.synonyms.insert(0, synonym);
        }
    }
}

/// The dynamic settings that hold for every broker, by name.
pub fn describe_every_broker(image: &MetadataImage) -> Vec<ConfigEntry> {
    image
        .broker_config(None)
        .iter()
        .filter_map(|(name, value)| {
            let key = dynamic_broker_key(name)?;
            let name = key.dynamic_synonym()?;
            let source = ConfigSource::DynamicDefaultBroker;
            let synonym = ConfigSynonym {
                name,
                value: Some(value.clone()),
                source,
            };
            Some(ConfigEntry {
                name,
                value: synonym.value.clone(),
                source,
                kind: key.kind,
                sensitive: false,
                read_only: false,
                doc: key.doc,
                synonyms: vec![synonym],
            })
        })
        .collect()
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
            ]
        );
        let broker = entry("segment.bytes");
        assert_eq!(broker.value.as_deref(), Some("2000000"));
        assert_eq!(broker.source, ConfigSource::StaticBroker);
        let default = entry("max.message.bytes");
        assert_eq!(default.value.as_deref(), Some("1048588"));
        assert_eq!(default.source, ConfigSource::Default);
        assert_eq!(default.synonyms.len(), 1);
        // As Kafka tells them: of several settings that stand for each other none has a default.
        assert_eq!(entry("flush.ms").synonyms, []);
        assert_eq!(entry("remote.storage.enable").synonyms, []);
        let hours = &entry("segment.ms").synonyms[0];
        assert_eq!(
            (hours.name, hours.value.as_deref()),
            ("log.roll.hours", Some("168"))
        );
    }
}
