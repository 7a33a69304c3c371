use std::collections::BTreeMap;

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
    /// The strongest broker value of each topic config that has one.
    set: BTreeMap<&'static str, BrokerValue>,
}

impl TopicDefaults {
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
        })
    }

    pub fn config(&self) -> &TopicConfig {
        &self.config
    }

    /// The broker setting that gives this topic config its default, if one was set.
    pub fn broker_value(&self, key: &TopicConfigKey) -> Option<&BrokerValue> {
        self.set.get(key.name)
    }

    /// The value a topic gets that sets nothing.
    pub fn value(&self, key: &TopicConfigKey) -> String {
        self.broker_value(key)
            .map_or_else(|| key.default.to_owned(), |set| set.value.clone())
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
