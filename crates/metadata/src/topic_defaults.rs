use std::collections::BTreeMap;

use crate::describe::ConfigSource;
use crate::topic_config::{TOPIC_CONFIGS, TopicConfig, TopicConfigKey, TopicOverrides};

/// A broker setting that somebody set, in the unit of the topic config it is the default of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerValue {
    pub key: &'static str,
    pub value: String,
}

/// What topics get where they set nothing: the broker's settings over Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct TopicDefaults {
    config: TopicConfig,
    /// The strongest broker value of each topic config that has one, of those given at the start.
    set: BTreeMap<&'static str, BrokerValue>,
    /// Dynamic broker values of topic configs, the strongest first: they win over all of `set`,
    /// because only the strongest synonym of a config can be set while the broker runs.
    dynamic: BTreeMap<&'static str, Vec<(ConfigSource, String)>>,
}

impl TopicDefaults {
    /// The configuration of a topic with these overrides, in Kafka's words.
    pub fn resolve(&self, overrides: &BTreeMap<String, String>) -> TopicConfig {
        TopicOverrides::parse(overrides).over(&self.config)
    }

    /// Takes the broker's settings through `set`, which answers only for keys that were set. The
    /// error names the broker's key, its value and what is wrong.
    pub fn new(
        set: impl Fn(&str) -> Option<String>,
    ) -> Result<TopicDefaults, (&'static str, String, String)> {
        let mut values = BTreeMap::new();
        let mut overrides = BTreeMap::new();
        for key in TOPIC_CONFIGS {
            let strongest = key
                .synonyms
                .iter()
                .find_map(|synonym| set(synonym.key).map(|value| (synonym, value)));
            let Some((synonym, given)) = strongest else {
                continue;
            };
            let value = key
                .kind
                .check(key.check, &synonym.unit.to_topic(&given))
                .map_err(|why| (synonym.key, given, why))?;
            overrides.insert(key.name.to_owned(), value.clone());
            let key_set = BrokerValue {
                key: synonym.key,
                value,
            };
            values.insert(key.name, key_set);
        }
        Ok(TopicDefaults {
            config: TopicOverrides::parse(&overrides).over(&TopicConfig::default()),
            set: values,
            dynamic: BTreeMap::new(),
        })
    }

    /// These defaults under dynamic settings: `broker`'s own, then those of every broker. A name or
    /// value that is not known counts as not set.
    pub fn with_dynamic(
        &self,
        broker: &BTreeMap<String, String>,
        every_broker: &BTreeMap<String, String>,
    ) -> TopicDefaults {
        let mut dynamic = BTreeMap::new();
        let mut overrides = BTreeMap::new();
        for key in TOPIC_CONFIGS {
            let Some(synonym) = key.dynamic_synonym() else {
                continue;
            };
            let sources = [
                (ConfigSource::DynamicBroker, broker),
                (ConfigSource::DynamicDefaultBroker, every_broker),
            ];
            let set: Vec<(ConfigSource, String)> = sources
                .into_iter()
                .filter_map(|(source, set)| Some((source, set.get(synonym)?.clone())))
                .collect();
            if let Some((_, value)) = set.first() {
                overrides.insert(key.name.to_owned(), value.clone());
                dynamic.insert(key.name, set);
            }
        }
        TopicDefaults {
            config: TopicOverrides::parse(&overrides).over(&self.config),
            set: self.set.clone(),
            dynamic,
        }
    }

    /// A topic config's dynamic broker values, the strongest first.
    pub fn dynamic_values(&self, key: &TopicConfigKey) -> &[(ConfigSource, String)] {
        self.dynamic.get(key.name).map_or(&[], Vec::as_slice)
    }

    pub fn config(&self) -> &TopicConfig {
        &self.config
    }

    /// The broker setting that gives this topic config its default, if one was set at the start.
    pub fn broker_value(&self, key: &TopicConfigKey) -> Option<&BrokerValue> {
        self.set.get(key.name)
    }

    /// The value a topic gets that sets nothing.
    pub fn value(&self, key: &TopicConfigKey) -> String {
        let dynamic = self.dynamic_values(key).first().map(|(_, value)| value);
        dynamic
            .or_else(|| self.broker_value(key).map(|set| &set.value))
            .map_or_else(|| key.default.to_owned(), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic_config::topic_config_key;

    #[test]
    fn the_strongest_synonym_wins_and_is_remembered() {
        let defaults = TopicDefaults::new(|key| match key {
            "log.retention.minutes" => Some("2".to_owned()),
            "log.retention.hours" => Some("1".to_owned()),
            "message.max.bytes" => Some("77".to_owned()),
            _ => None,
        })
        .unwrap();
        assert_eq!(defaults.config().retention_ms, 120_000);
        assert_eq!(defaults.config().max_message_bytes, 77);
        let retention = topic_config_key("retention.ms").unwrap();
        let set = defaults.broker_value(retention).unwrap();
        assert_eq!(set.key, "log.retention.minutes");
        assert_eq!(defaults.value(retention), "120000");
        let segment = topic_config_key("segment.bytes").unwrap();
        assert_eq!(defaults.broker_value(segment), None);
        assert_eq!(defaults.value(segment), "1073741824");
    }

    #[test]
    fn dynamic_values_win_over_those_of_the_start() {
        let at_start = TopicDefaults::new(|key| match key {
            "log.retention.hours" => Some("1".to_owned()),
            "message.max.bytes" => Some("77".to_owned()),
            _ => None,
        })
        .unwrap();
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
            pairs.iter().map(owned).collect()
        };
        let here = map(&[("log.retention.ms", "5")]);
        let everywhere = map(&[
            ("log.retention.ms", "6"),
            ("message.max.bytes", "88"),
            ("log.retention.hours", "9"),
            ("bogus", "1"),
        ]);
        let defaults = at_start.with_dynamic(&here, &everywhere);
        assert_eq!(defaults.config().retention_ms, 5);
        assert_eq!(defaults.config().max_message_bytes, 88);
        let retention = topic_config_key("retention.ms").unwrap();
        assert_eq!(defaults.value(retention), "5");
        let chain: Vec<ConfigSource> = (defaults.dynamic_values(retention).iter())
            .map(|(source, _)| *source)
            .collect();
        let both = [
            ConfigSource::DynamicBroker,
            ConfigSource::DynamicDefaultBroker,
        ];
        assert_eq!(chain, both);
        assert_eq!(at_start.with_dynamic(&map(&[]), &map(&[])), at_start);
    }

    #[test]
    fn a_wrong_broker_value_is_named() {
        let error = TopicDefaults::new(|key| {
            (key == "log.message.timestamp.type").then(|| "Sometimes".to_owned())
        })
        .unwrap_err();
        assert_eq!(error.0, "log.message.timestamp.type");
        assert_eq!(error.1, "Sometimes");
        assert!(error.2.contains("LogAppendTime"), "{}", error.2);
    }
}
