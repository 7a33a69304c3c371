//! Text that is never shown.

use std::fmt;

use crate::typed::FromSetting;

/// A password, or a text that holds some. Its `Debug` says nothing of it, also not its length.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for whoever has to check or to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl FromSetting for Secret {
    fn from_setting(text: Option<&str>) -> Option<Self> {
        text.map(Secret::new)
    }
}
