//! What DescribeConfigs answers for the broker.

use tidemark_metadata::{ConfigEntry, ConfigSource, ConfigSynonym};

use crate::rows::{Settings, rows};
use crate::values::Source;

impl Settings {
    /// Every setting in DescribeConfigs' terms, by name. None can be changed while the broker
    /// runs, so all are read-only.
    pub fn describe_broker_configs(&self) -> Vec<ConfigEntry> {
        let mut entries: Vec<ConfigEntry> = rows()
            .iter()
            .map(|row| {
                let shown =
                    |text: Option<&str>| text.filter(|_| !row.sensitive).map(ToOwned::to_owned);
                let synonym = |value, source| ConfigSynonym {
                    name: row.name,
                    value,
                    source,
                };
                let mut synonyms = Vec::with_capacity(2);
                if let Some(set) = self.values.set_text(row.name) {
                    synonyms.push(synonym(shown(Some(set)), ConfigSource::StaticBroker));
                }
                if let Some(default) = &row.default {
                    synonyms.push(synonym(shown(Some(default)), ConfigSource::Default));
                }
                ConfigEntry {
                    name: row.name,
                    value: shown(self.values.text(row.name)),
                    source: match self.values.source(row.name) {
                        Source::Default => ConfigSource::Default,
                        _ => ConfigSource::StaticBroker,
                    },
                    kind: row.kind,
                    sensitive: row.sensitive,
                    read_only: !row.dynamic,
                    doc: &row.doc,
                    synonyms,
                }
            })
            .collect();
        entries.sort_by_key(|entry| entry.name);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Inputs, load};

    #[test]
    fn every_setting_is_told_with_its_source() {
        let inputs = Inputs {
            flags: vec![("num-partitions".to_owned(), "7".to_owned())],
            ..Inputs::default()
        };
        let entries = load(&inputs).unwrap().settings.describe_broker_configs();
        assert!(entries.is_sorted_by_key(|entry| entry.name));
        assert_eq!(entries.len(), rows().len());
        let entry = |name| entries.iter().find(|e| e.name == name).unwrap();
        let set = entry("num.partitions");
        assert_eq!(set.value.as_deref(), Some("7"));
        assert_eq!(set.source, ConfigSource::StaticBroker);
        assert_eq!(set.synonyms.len(), 2);
        let default = entry("message.max.bytes");
        assert_eq!(default.value.as_deref(), Some("1048588"));
        assert_eq!(default.source, ConfigSource::Default);
        assert_eq!(entry("advertised.listeners").value, None);
    }
}
