//! LeaveGroup.

use tidemark_types::MonoTime;

use crate::effect::{Effect, GroupReplyToken};
use crate::groups::Groups;
use crate::request::LeaveRequest;

impl Groups {
    /// Decides a LeaveGroup.
    pub fn leave(
        &mut self,
        token: GroupReplyToken,
        request: LeaveRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let _ = (token, request, now, wall_ms);
        Vec::new()
    }
}
