/// The `group.*` and `offset.*` settings that groups depend on, by Kafka's names and defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`: a shorter session is refused with INVALID_SESSION_TIMEOUT.
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`: a longer session is refused with INVALID_SESSION_TIMEOUT.
    pub max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members; each
    /// new member extends the wait, up to the longest rebalance timeout. 0 does not wait.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`: members of one group, above it GROUP_MAX_SIZE_REACHED.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`: the text beside an offset, above it OFFSET_METADATA_TOO_LARGE.
    pub offset_metadata_max_bytes: usize,
    /// How long a JoinGroup of a member that never completed one may stay parked. Such a member
    /// does not know its id, so it can neither heartbeat nor leave.
    pub new_member_join_timeout_ms: i32,
    /// Most bytes of one batch of `__consumer_offsets`, as that topic's `max.message.bytes`. A
    /// larger assignment is refused with MESSAGE_TOO_LARGE, a larger commit with
    /// INVALID_COMMIT_OFFSET_SIZE.
    pub max_batch_bytes: usize,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            max_size: i32::MAX as usize,
            offset_metadata_max_bytes: 4_096,
            new_member_join_timeout_ms: 300_000,
            max_batch_bytes: 1_048_588,
        }
    }
}
