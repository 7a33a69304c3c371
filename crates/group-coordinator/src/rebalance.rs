//! The steps of a rebalance, shared by requests and timers.

use tidemark_types::MonoTime;

use crate::config::GroupConfig;
use crate::effect::Effect;
use crate::group::Group;
use crate::timers::Timers;

/// One request or timer at work on one group.
pub(crate) struct Step<'a> {
    pub group_id: &'a str,
    pub group: &'a mut Group,
    pub timers: &'a mut Timers,
    pub config: &'a GroupConfig,
    pub now: MonoTime,
    pub wall_ms: i64,
    pub effects: Vec<Effect>,
}

impl Step<'_> {
    pub fn restore_sessions(&mut self) {}
    pub fn prepare_rebalance(&mut self) {}
    pub fn restart_session(&mut self, _member_id: &str) {}
}
