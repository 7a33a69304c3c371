//! What must hold after every step.
use crate::groups::Groups;

impl Groups {
    /// Checks the invariants; the text names the one that is broken.
    pub fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
