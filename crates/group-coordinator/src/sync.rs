//! SyncGroup.

use tidemark_types::MonoTime;

use crate::effect::{Effect, GroupReplyToken};
use crate::groups::Groups;
use crate::request::SyncRequest;

impl Groups {
    /// Decides a SyncGroup.
    pub fn sync(
        &mut self,
        token: GroupReplyToken,
        request: SyncRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let _ = (token, request, now, wall_ms);
        Vec::new()
    }
}
