//! Topic configs as they are given, by CreateTopics and by the requests that alter them: Kafka's
//! checks, codes and sentences.

use std::collections::BTreeMap;

use tidemark_types::ErrorCode;

use crate::Refusal;
use crate::create_topic::TopicLimits;
use crate::topic_config::{TopicOverrides, topic_config_key};
use crate::topic_defaults::TopicDefaults;
use crate::value::Check;

/// Checks a new topic's configs and brings them to the form they are stored in.
pub(crate) fn check_new_configs(
    configs: &[(String, Option<String>)],
    limits: &TopicLimits,
) -> Result<BTreeMap<String, String>, Refusal> {
    let nulls: Vec<&str> = configs
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    if !nulls.is_empty() {
        let nulls = nulls.join(",");
        let message = format!("Null value not supported for topic configs: {nulls}");
        return Err((ErrorCode::InvalidConfig, message));
    }
    let mut checked = BTreeMap::new();
    for (name, value) in configs {
        let value = check_config(name, value.as_deref().unwrap_or_default(), limits)?;
        checked.insert(name.clone(), value);
    }
    check_together(&checked).map(|()| checked)
}

/// Checks one config and brings its value to the form it is stored in.
pub(crate) fn check_config(
    name: &str,
    value: &str,
    limits: &TopicLimits,
) -> Result<String, Refusal> {
    let refusal = |message: String| (ErrorCode::InvalidConfig, message);
    let key = topic_config_key(name)
        .ok_or_else(|| refusal(format!("Unknown topic config name: {name}")))?;
    let check = match name {
        "segment.bytes" => Check::AtLeast(i64::from(limits.segment_bytes_min)),
        _ => key.check,
    };
    key.kind.check(check, value).map_err(|why| {
        refusal(format!(
            "Invalid value {value} for configuration {name}: {why}"
        ))
    })
}

/// What must hold between a topic's configs (Kafka's LogConfig.validateValues).
pub(crate) fn check_together(config: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let resolved = TopicOverrides::parse(config).over(TopicDefaults::default().config());
    if resolved.min_compaction_lag_ms > resolved.max_compaction_lag_ms {
        return Err((
            ErrorCode::InvalidConfig,
            format!(
                "conflict topic config setting min.compaction.lag.ms ({}) > max.compaction.lag.ms \
                 ({})",
                resolved.min_compaction_lag_ms, resolved.max_compaction_lag_ms
            ),
        ));
    }
    if resolved.remote_storage_enable {
        return Err((
            ErrorCode::InvalidConfig,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured \
             with remote log storage."
                .to_owned(),
        ));
    }
    Ok(())
}
