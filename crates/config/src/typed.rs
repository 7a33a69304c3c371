//! From the text of a setting to the value that the broker works with.

/// A value of a setting as the broker uses it.
pub(crate) trait FromSetting: Sized {
    /// None: the text is no value of this type.
    fn from_setting(text: Option<&str>) -> Option<Self>;
}

macro_rules! from_setting_by_parse {
    ($($ty:ty),*) => {
        $(impl FromSetting for $ty {
            fn from_setting(text: Option<&str>) -> Option<Self> {
                text?.parse().ok()
            }
        })*
    };
}

from_setting_by_parse!(bool, f64, i16, i32, i64, u64, usize, String);

/// When the journal is synced (`journal.sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalSync {
    /// Before every acknowledgement.
    Always,
    /// This long after an acknowledgement at the latest.
    Interval { ms: u64 },
    /// When the operating system writes back.
    Os,
}

impl FromSetting for JournalSync {
    fn from_setting(text: Option<&str>) -> Option<Self> {
        match text? {
            "always" => Some(JournalSync::Always),
            "os" => Some(JournalSync::Os),
            text => {
                let ms = text.strip_prefix("interval:")?.parse().ok()?;
                Some(JournalSync::Interval { ms })
            }
        }
    }
}

/// From when a transaction's timeout counts (`transaction.lease.mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionLease {
    /// From its first partition, as in Kafka.
    Start,
    /// From the last thing that was written or enrolled in it.
    Renewed,
}

impl FromSetting for TransactionLease {
    fn from_setting(text: Option<&str>) -> Option<Self> {
        match text? {
            "kafka" => Some(TransactionLease::Start),
            "renew" => Some(TransactionLease::Renewed),
            _ => None,
        }
    }
}

/// Whose a transactional id is (`transactional.id.owner`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionalIdOwner {
    /// Whoever ACLs allow to write it.
    Any,
    /// The principal that opened its first session.
    First,
}

impl FromSetting for TransactionalIdOwner {
    fn from_setting(text: Option<&str>) -> Option<Self> {
        match text? {
            "any" => Some(TransactionalIdOwner::Any),
            "first" => Some(TransactionalIdOwner::First),
            _ => None,
        }
    }
}

/// Operations that abort the open transactions they cut through
/// (`transaction.exclusive.operations`). Deleting a topic always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExclusiveOperations {
    pub delete_records: bool,
    pub create_partitions: bool,
    /// A change of the topic's `cleanup.policy`.
    pub cleanup_policy: bool,
}

impl ExclusiveOperations {
    pub(crate) const WORDS: &[&str] = &["DeleteRecords", "CreatePartitions", "cleanup.policy"];
}

impl FromSetting for ExclusiveOperations {
    fn from_setting(text: Option<&str>) -> Option<Self> {
        let mut operations = ExclusiveOperations::default();
        for word in text?.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "DeleteRecords" => operations.delete_records = true,
                "CreatePartitions" => operations.create_partitions = true,
                "cleanup.policy" => operations.cleanup_policy = true,
                _ => return None,
            }
        }
        Some(operations)
    }
}

impl<T: FromSetting> FromSetting for Option<T> {
    fn from_setting(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("") => Some(None),
            some => T::from_setting(some).map(Some),
        }
    }
}
