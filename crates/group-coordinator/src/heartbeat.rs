//! Heartbeat.

use tidemark_types::MonoTime;

use crate::effect::{Effect, GroupReplyToken};
use crate::groups::Groups;
use crate::request::HeartbeatRequest;

impl Groups {
    /// Decides a Heartbeat.
    pub fn heartbeat(
        &mut self,
        token: GroupReplyToken,
        request: HeartbeatRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let _ = (token, request, now, wall_ms);
        Vec::new()
    }
}
