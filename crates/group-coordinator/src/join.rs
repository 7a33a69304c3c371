//! JoinGroup.

use crate::effect::{Effect, GroupReplyToken};
use crate::groups::{Ctx, Groups};
use crate::request::JoinRequest;

impl Groups {
    /// Decides a JoinGroup.
    pub fn join(
        &mut self,
        token: GroupReplyToken,
        request: JoinRequest,
        ctx: &mut Ctx<'_>,
    ) -> Vec<Effect> {
        let _ = (token, request, ctx.now);
        Vec::new()
    }
}
