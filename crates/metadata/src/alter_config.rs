//! IncrementalAlterConfigs (KIP-339) and AlterConfigs on a topic.

use std::collections::BTreeMap;

use tidemark_types::ErrorCode;

use crate::Refusal;
use crate::check_config::{check_config, check_together};
use crate::create_topic::TopicLimits;
use crate::image::{MetadataImage, TopicImage};
use crate::record::MetadataRecord;
use crate::topic_config::{TopicConfigKey, topic_config_key};
use crate::topic_name::validate_topic_name;
use crate::value::{Kind, list_items};

/// What happens to one config of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    Set(String),
    /// Back to the broker's default. Nothing happens to a config that was not set, whatever its name.
    Delete,
    /// Adds items to a list that are not in it.
    Append(String),
    /// Takes items from a list that are in it.
    Subtract(String),
}

impl MetadataImage {
    /// Decides on changes to a topic's own configs, each named at most once. `None`: they leave it as
    /// it is.
    ///
    /// Errors: INVALID_REQUEST and INVALID_TOPIC_EXCEPTION for a name that no topic can have,
    /// UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG.
    pub fn decide_alter_topic_config(
        &self,
        name: &str,
        changes: &[(String, ConfigChange)],
        limits: &TopicLimits,
    ) -> Result<Option<MetadataRecord>, Refusal> {
        let mut config = self.topic_to_alter(name)?.config.clone();
        for (key, change) in changes {
            match changed(&config, key, topic_config_key(key), change)? {
                None => drop(config.remove(key)),
                Some(given) => {
                    let value = check_config(key, &given, limits)?;
                    config.insert(key.clone(), value);
                }
            }
        }
        self.config_set(name, config)
    }

    /// Decides on a new set of a topic's own configs: what is not named goes back to its default.
    /// Otherwise as [`MetadataImage::decide_alter_topic_config`].
    pub fn decide_replace_topic_config(
        &self,
        name: &str,
        configs: &[(String, String)],
        limits: &TopicLimits,
    ) -> Result<Option<MetadataRecord>, Refusal> {
        self.topic_to_alter(name)?;
        let mut config = BTreeMap::new();
        for (key, value) in configs {
            config.insert(key.clone(), check_config(key, value, limits)?);
        }
        self.config_set(name, config)
    }

    fn topic_to_alter(&self, name: &str) -> Result<&TopicImage, Refusal> {
        if name.is_empty() {
            let message = "Default topic resources are not allowed.".to_owned();
            return Err((ErrorCode::InvalidRequest, message));
        }
        validate_topic_name(name).map_err(|why| {
            let message = format!("Topic name is invalid: {why}");
            (ErrorCode::InvalidTopicException, message)
        })?;
        let topic = self.topic(name).ok_or_else(|| {
            let message = format!("The topic '{name}' does not exist.");
            (ErrorCode::UnknownTopicOrPartition, message)
        })?;
        Ok(topic)
    }

    fn config_set(
        &self,
        name: &str,
        config: BTreeMap<String, String>,
    ) -> Result<Option<MetadataRecord>, Refusal> {
        check_together(&config)?;
        let topic = self.topic_to_alter(name)?;
        let changed = topic.config != config;
        Ok(changed.then_some(MetadataRecord::TopicConfigSet {
            id: topic.id,
            config,
        }))
    }
}

/// What a change makes of one config of a set; `None`: nothing. `row` says what it is, if it is known.
pub(crate) fn changed(
    config: &BTreeMap<String, String>,
    name: &str,
    row: Option<&TopicConfigKey>,
    change: &ConfigChange,
) -> Result<Option<String>, Refusal> {
    // A list that is not set begins as Kafka's default.
    let list = |operation| match row {
        Some(row) if row.kind == Kind::List => Ok(list_items(
            config.get(name).map_or(row.default, |value| value),
        )),
        _ => Err((
            ErrorCode::InvalidConfig,
            format!("Can't {operation} to key {name} because its type is not LIST."),
        )),
    };
    Ok(match change {
        ConfigChange::Set(value) => Some(value.clone()),
        ConfigChange::Delete => None,
        ConfigChange::Append(items) => {
            let mut list = list("APPEND")?;
            for item in list_items(items) {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
            Some(list.join(","))
        }
        ConfigChange::Subtract(items) => {
            let mut list = list("SUBTRACT")?;
            let gone = list_items(items);
            list.retain(|item| !gone.contains(item));
            Some(list.join(","))
        }
    })
}

#[cfg(test)]
mod tests {
    use tidemark_types::{NodeId, TopicId};

    use super::*;

    fn image(config: &[(&str, &str)]) -> MetadataImage {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(0), 1) {
            image.apply(&record);
        }
        image.apply(&MetadataRecord::TopicCreated {
            name: "t".to_owned(),
            id: TopicId([1; 16]),
            partitions: 1,
            config: map(config),
        });
        image
    }

    fn map(config: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
        config.iter().map(owned).collect()
    }

    fn set(value: &str) -> ConfigChange {
        ConfigChange::Set(value.to_owned())
    }

    fn append(items: &str) -> ConfigChange {
        ConfigChange::Append(items.to_owned())
    }

    fn subtract(items: &str) -> ConfigChange {
        ConfigChange::Subtract(items.to_owned())
    }

    type Configs<'a> = &'a [(&'a str, &'a str)];

    /// The topic's configs after the changes, `None` if nothing is written.
    fn alter(
        before: &[(&str, &str)],
        changes: &[(&str, ConfigChange)],
    ) -> Result<Option<BTreeMap<String, String>>, Refusal> {
        let changes: Vec<_> = changes
            .iter()
            .map(|(name, change)| (name.to_string(), change.clone()))
            .collect();
        let decided =
            image(before).decide_alter_topic_config("t", &changes, &TopicLimits::default())?;
        Ok(decided.map(|record| match record {
            MetadataRecord::TopicConfigSet { config, .. } => config,
            other => panic!("{other:?}"),
        }))
    }

    #[test]
    fn each_operation_changes_what_it_names() {
        use ConfigChange::Delete;
        let both = [("cleanup.policy", "delete,compact")];
        let compact = [("cleanup.policy", "compact")];
        let nothing: [(&str, &str); 0] = [];
        let cases: [(Configs<'_>, (&str, ConfigChange), Configs<'_>); 8] = [
            (&[], ("retention.ms", set(" 5 ")), &[("retention.ms", "5")]),
            (
                &[("retention.ms", "5")],
                ("retention.ms", set("6")),
                &[("retention.ms", "6")],
            ),
            (&[("retention.ms", "5")], ("retention.ms", Delete), &nothing),
            // The list that is not set is Kafka's default.
            (&[], ("cleanup.policy", append("compact")), &both),
            (
                &compact,
                ("cleanup.policy", append("compact,delete")),
                &[("cleanup.policy", "compact,delete")],
            ),
            (&both, ("cleanup.policy", subtract("delete")), &compact),
            (
                &compact,
                ("cleanup.policy", subtract("compact")),
                &[("cleanup.policy", "")],
            ),
            (
                &[("cleanup.policy", "")],
                ("cleanup.policy", append("delete")),
                &[("cleanup.policy", "delete")],
            ),
        ];
        for (before, change, after) in cases {
            let altered = alter(before, std::slice::from_ref(&change));
            assert_eq!(altered, Ok(Some(map(after))), "{before:?} {change:?}");
        }
        // Nothing to write.
        for (before, change) in [
            (&both[..], ("cleanup.policy", append("delete"))),
            (&compact, ("cleanup.policy", subtract("delete"))),
            (&[("retention.ms", "5")], ("retention.ms", set("5"))),
            (&[], ("retention.ms", Delete)),
            (&[], ("no.such.config", Delete)),
        ] {
            let altered = alter(before, std::slice::from_ref(&change));
            assert_eq!(altered, Ok(None), "{change:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_whole() {
        let cases = [
            (
                ("no.such.config", set("1")),
                "Unknown topic config name: no.such.config",
            ),
            (("retention.ms", set("soon")), "Not a number of type LONG"),
            (("retention.ms", set("-2")), "Invalid value -2"),
            (("cleanup.policy", append("burn")), "burn"),
            (
                ("retention.ms", append("1")),
                "Can't APPEND to key retention.ms",
            ),
            (
                ("retention.ms", subtract("1")),
                "Can't SUBTRACT to key retention.ms",
            ),
            (("no.such.config", append("1")), "Can't APPEND"),
            (
                ("max.compaction.lag.ms", set("1")),
                "conflict topic config setting",
            ),
        ];
        for (change, says) in cases {
            let good = ("min.compaction.lag.ms", set("77"));
            let (code, message) = alter(&[], &[good, change.clone()]).unwrap_err();
            assert_eq!(code, ErrorCode::InvalidConfig, "{change:?}");
            assert!(message.contains(says), "{change:?}: {message}");
        }
        for (name, code) in [
            ("", ErrorCode::InvalidRequest),
            ("a b", ErrorCode::InvalidTopicException),
            ("missing", ErrorCode::UnknownTopicOrPartition),
        ] {
            let refused = image(&[]).decide_alter_topic_config(name, &[], &TopicLimits::default());
            assert_eq!(refused.unwrap_err().0, code, "{name:?}");
            let refused =
                image(&[]).decide_replace_topic_config(name, &[], &TopicLimits::default());
            assert_eq!(refused.unwrap_err().0, code, "{name:?}");
        }
    }

    #[test]
    fn a_replacement_forgets_what_it_does_not_name() {
        let before = image(&[("retention.ms", "5"), ("segment.bytes", "2000000")]);
        let replace = |configs: &[(&str, &str)]| {
            let owned = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
            let configs: Vec<_> = configs.iter().map(owned).collect();
            before.decide_replace_topic_config("t", &configs, &TopicLimits::default())
        };
        let id = TopicId([1; 16]);
        let config = map(&[("retention.ms", "6")]);
        let record = MetadataRecord::TopicConfigSet { id, config };
        assert_eq!(replace(&[("retention.ms", "6")]), Ok(Some(record)));
        let same = replace(&[("segment.bytes", "2000000"), ("retention.ms", "5")]);
        assert_eq!(same, Ok(None));
        let (code, _) = replace(&[("retention.ms", "soon")]).unwrap_err();
        assert_eq!(code, ErrorCode::InvalidConfig);
    }
}
