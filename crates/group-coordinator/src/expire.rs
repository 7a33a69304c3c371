//! What happens when a deadline comes.

use tidemark_types::MonoTime;

use crate::effect::Effect;
use crate::groups::Groups;

impl Groups {
    /// Acts on every deadline that has come.
    pub fn expire(&mut self, now: MonoTime, wall_ms: i64) -> Vec<Effect> {
        let _ = (now, wall_ms);
        Vec::new()
    }
}
