use tidemark_types::{CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE};

/// The longest topic name: it must fit a directory name together with the partition.
pub const MAX_TOPIC_NAME_BYTES: usize = 249;

/// Kafka's rules for a topic's name; the error is the sentence Kafka's clients see.
pub fn validate_topic_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the empty string is not allowed".to_owned());
    }
    if name == "." || name == ".." {
        return Err(format!("'{name}' is not allowed"));
    }
    if name.len() > MAX_TOPIC_NAME_BYTES {
        return Err(format!(
            "the length of '{}...' is longer than the max allowed length {MAX_TOPIC_NAME_BYTES}",
            name.chars().take(32).collect::<String>()
        ));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.chars().all(legal) {
        return Err(format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ));
    }
    Ok(())
}

/// Two topics whose names differ only in '.' and '_' would have the same metric names: Kafka
/// refuses the second. Names with equal keys collide.
pub fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

/// True for the topics that only the broker's own coordinators create and write.
pub fn is_internal_topic(name: &str) -> bool {
    name == CONSUMER_OFFSETS || name == TRANSACTION_STATE || name == CLUSTER_METADATA
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rules() {
        let longest = "x".repeat(MAX_TOPIC_NAME_BYTES);
        for good in ["a", "A-b_c.9", "...", "__mine", longest.as_str()] {
            assert_eq!(validate_topic_name(good), Ok(()), "{good}");
        }
        let too_long = "x".repeat(MAX_TOPIC_NAME_BYTES + 1);
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\0", too_long.as_str()] {
            assert!(validate_topic_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn dots_and_underscores_collide() {
        assert_eq!(collision_key("a.b_c"), collision_key("a_b.c"));
        assert_ne!(collision_key("a.b"), collision_key("a-b"));
    }
}
