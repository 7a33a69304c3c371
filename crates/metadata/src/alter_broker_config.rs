//! IncrementalAlterConfigs and AlterConfigs on a broker, or on every broker: the settings that can
//! change while it runs, which are the defaults of topic configs (`log.*`, `message.max.bytes`).

use std::collections::BTreeMap;

use tidemark_types::{ErrorCode, NodeId};

use crate::Refusal;
use crate::alter_config::{ConfigChange, changed};
use crate::image::MetadataImage;
use crate::record::{BROKER_CONFIG_LEVEL, MetadataRecord};
use crate::topic_config::dynamic_broker_key;

impl MetadataImage {
    /// Decides on changes to the dynamic settings of a broker, or with `None` of every broker, each
    /// named at most once. Empty: they leave them as they are.
    ///
    /// Errors: INVALID_REQUEST for a setting that cannot change while the broker runs (taking it back
    /// changes nothing and is no error) and for a value that it cannot have.
    pub fn decide_alter_broker_config(
        &self,
        node: Option<NodeId>,
        changes: &[(String, ConfigChange)],
    ) -> Result<Vec<MetadataRecord>, Refusal> {
        let set = changes.iter().filter(|(_, c)| *c != ConfigChange::Delete);
        check_dynamic(set.map(|(name, _)| name.as_str()))?;
        let mut config = self.broker_config(node).clone();
        for (name, change) in changes {
            match dynamic_broker_key(name) {
                None => {}
                Some(key) => match changed(&config, name, Some(key), change)? {
                    None => drop(config.remove(name)),
                    Some(given) => drop(config.insert(name.clone(), check(name, &given)?)),
                },
            }
        }
        Ok(self.broker_config_set(node, config))
    }

    /// Decides on a new set of a broker's dynamic settings, or of every broker's. Otherwise as
    /// [`MetadataImage::decide_alter_broker_config`].
    pub fn decide_replace_broker_config(
        &self,
        node: Option<NodeId>,
        configs: &[(String, String)],
    ) -> Result<Vec<MetadataRecord>, Refusal> {
        check_dynamic(configs.iter().map(|(name, _)| name.as_str()))?;
        let mut config = BTreeMap::new();
        for (name, value) in configs {
            config.insert(name.clone(), check(name, value)?);
        }
        Ok(self.broker_config_set(node, config))
    }

    fn broker_config_set(
        &self,
        node: Option<NodeId>,
        config: BTreeMap<String, String>,
    ) -> Vec<MetadataRecord> {
        if *self.broker_config(node) == config {
            return Vec::new();
        }
        // A data directory from before this kind of record: it is raised with the first one.
        let level = BROKER_CONFIG_LEVEL;
        let raise = self.feature_level() < level;
        raise
            .then_some(MetadataRecord::FeatureLevel { level })
            .into_iter()
            .chain([MetadataRecord::BrokerConfigSet { node, config }])
            .collect()
    }
}

fn check_dynamic<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    let fixed: Vec<&str> = names.filter(|n| dynamic_broker_key(n).is_none()).collect();
    match fixed.is_empty() {
        true => Ok(()),
        false => Err((
            ErrorCode::InvalidRequest,
            format!(
                "Cannot update these configs dynamically: Set({})",
                fixed.join(", ")
            ),
        )),
    }
}

fn check(name: &str, value: &str) -> Result<String, Refusal> {
    let key = dynamic_broker_key(name).expect("checked before its value");
    key.kind.check(key.check, value).map_err(|why| {
        let message = format!("Invalid value {value} for configuration {name}: {why}");
        (ErrorCode::InvalidRequest, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> MetadataImage {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(3), 1) {
            image.apply(&record);
        }
        image
    }

    fn set(name: &str, value: &str) -> (String, ConfigChange) {
        (name.to_owned(), ConfigChange::Set(value.to_owned()))
    }

    #[test]
    fn settings_change_for_one_broker_and_for_all() {
        let mut image = image();
        let here = Some(NodeId(3));
        for (node, value) in [(None, "5"), (here, " 6 ")] {
            let changes = [set("log.retention.ms", value)];
            for record in image.decide_alter_broker_config(node, &changes).unwrap() {
                image.apply(&record);
            }
            let again = image.decide_alter_broker_config(node, &changes);
            assert_eq!(again, Ok(Vec::new()), "nothing new");
        }
        assert_eq!(image.broker_config(here)["log.retention.ms"], "6");
        assert_eq!(image.broker_config(None)["log.retention.ms"], "5");
        let defaults = image.topic_defaults(&Default::default());
        assert_eq!(defaults.config().retention_ms, 6);

        // A checkpoint keeps them.
        let mut restored = MetadataImage::empty();
        for record in image.snapshot_records() {
            restored.apply(&record);
        }
        assert_eq!(restored, image);

        let delete = [("log.retention.ms".to_owned(), ConfigChange::Delete)];
        let replace = image.decide_replace_broker_config(None, &[]).unwrap();
        let delete = image.decide_alter_broker_config(here, &delete).unwrap();
        for record in delete.iter().chain(&replace) {
            image.apply(record);
        }
        assert!(image.has_broker_configs_of(&MetadataImage::empty()));
    }

    #[test]
    fn only_what_can_change_is_changed() {
        let image = image();
        for change in [
            set("num.partitions", "5"),
            set("log.retention.hours", "5"),
            set("bogus", "5"),
            set("log.retention.ms", "soon"),
            (
                "num.partitions".to_owned(),
                ConfigChange::Append("5".to_owned()),
            ),
        ] {
            let refused = image.decide_alter_broker_config(None, std::slice::from_ref(&change));
            let (code, _) = refused.unwrap_err();
            assert_eq!(code, ErrorCode::InvalidRequest, "{change:?}");
        }
        let delete = [("num.partitions".to_owned(), ConfigChange::Delete)];
        assert_eq!(
            image.decide_alter_broker_config(None, &delete),
            Ok(Vec::new())
        );
    }

    #[test]
    fn an_old_directory_is_raised_with_the_first_setting() {
        let mut old = MetadataImage::empty();
        old.apply(&MetadataRecord::FeatureLevel { level: 1 });
        let changes = [set("message.max.bytes", "5")];
        let records = old.decide_alter_broker_config(None, &changes).unwrap();
        assert_eq!(records[0], MetadataRecord::FeatureLevel { level: 2 });
        assert_eq!(records.len(), 2);
        for record in &records {
            old.apply(record);
        }
        let changes = [set("message.max.bytes", "6")];
        let records = old.decide_alter_broker_config(None, &changes).unwrap();
        assert_eq!(records.len(), 1);
    }
}
