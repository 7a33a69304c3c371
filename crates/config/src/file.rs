use std::path::Path;

use crate::problem::Problem;
use crate::{properties, toml_file};

/// The format of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Toml,
    /// Kafka's server.properties.
    Properties,
}

/// A settings file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// As it was given, for messages.
    pub path: String,
    pub kind: FileKind,
    pub text: String,
}

impl ConfigFile {
    /// A file's text; the format follows from the name's ending, or else from the text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> ConfigFile {
        let (path, text) = (path.into(), text.into());
        let ending = Path::new(&path)
            .extension()
            .map(|ending| ending.to_ascii_lowercase());
        let kind = match ending.as_deref().and_then(|e| e.to_str()) {
            Some("toml") => FileKind::Toml,
            Some("properties") => FileKind::Properties,
            // Where a text is good in both formats, it means the same in both.
            _ if toml_file::parse(&path, &text).is_ok() => FileKind::Toml,
            _ => FileKind::Properties,
        };
        ConfigFile { path, kind, text }
    }

    pub fn read(path: &Path) -> Result<ConfigFile, Problem> {
        let shown = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Problem {
            what: "the settings file cannot be read".to_owned(),
            place: shown.clone(),
            value: Some(error.to_string()),
            mend: "give --config a file that exists and that this user may read".to_owned(),
        })?;
        // Java reads .properties as Latin-1, today's editors write UTF-8.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| error.as_bytes().iter().map(|b| char::from(*b)).collect());
        Ok(ConfigFile::new(shown, text))
    }

    /// Every assignment: key, value, line.
    pub(crate) fn assignments(&self) -> Result<Vec<(String, String, usize)>, Problem> {
        match self.kind {
            FileKind::Toml => Ok(toml_file::parse(&self.path, &self.text)?
                .into_iter()
                .map(|a| (a.key, a.value, a.line))
                .collect()),
            FileKind::Properties => Ok(properties::parse(&self.text)
                .into_iter()
                .map(|p| (p.key, p.value, p.line))
                .collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_from_the_name_or_the_text() {
        let kind = |path: &str, text: &str| ConfigFile::new(path, text).kind;
        assert_eq!(kind("a.toml", ""), FileKind::Toml);
        assert_eq!(kind("a.properties", "x = 1"), FileKind::Properties);
        assert_eq!(kind("conf", "log.dirs=/var/lib"), FileKind::Properties);
        assert_eq!(kind("conf", "\"log.dirs\" = \"/x\""), FileKind::Toml);
    }

    #[test]
    fn a_file_is_read_also_in_latin_1() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.properties");
        std::fs::write(&path, b"log.dirs=/d\xe4ta\n").unwrap();
        let file = ConfigFile::read(&path).unwrap();
        assert_eq!(file.text, "log.dirs=/däta\n");

        let missing = ConfigFile::read(&dir.path().join("none.toml")).unwrap_err();
        assert!(missing.place.ends_with("none.toml"));
    }
}
