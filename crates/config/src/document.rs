//! Writes config/tidemark.toml from the rows.

use std::fmt::Write;

use crate::row::{Row, Section};
use crate::rows::rows;
use tidemark_metadata::Kind;

const WIDTH: usize = 96;

const HEAD: &str = "\
# Tidemark's settings: every key, with its default and range.
#
# Nothing here need be set: take the # from a line to set its key, and start with
#   tidemark serve --config FILE
# Each key is also a flag (--node-id) and an environment variable (TIDEMARK_NODE_ID). Flags win
# over the environment, the environment over this file. Keys with Kafka's names mean what they
# mean in Kafka, and a server.properties may be given instead of this file.
# `tidemark config explain` prints the value in force of every key and where it is from.
#
# This file is written by `tidemark config docs`.
";

/// A TOML file with every setting, each documented and commented out.
pub fn toml_document() -> String {
    let mut out = HEAD.to_owned();
    for section in Section::ALL {
        let rule = "-".repeat(WIDTH - 5 - section.title().len());
        let _ = write!(out, "\n# -- {} {rule}\n", section.title());
        for row in rows().iter().filter(|row| row.section == section) {
            describe(&mut out, row);
        }
    }
    out
}

fn describe(out: &mut String, row: &Row) {
    out.push('\n');
    wrap(out, &row.doc);
    let default = match &row.default {
        Some(default) if default.is_empty() => "empty".to_owned(),
        Some(default) => default.to_string(),
        None => "none".to_owned(),
    };
    let also = match row.aliases {
        [] => String::new(),
        aliases => format!(" Also: {}.", aliases.join(", ")),
    };
    wrap(
        out,
        &format!("Default: {default}. Values: {}.{also}", row.range()),
    );
    let value = match (&row.default, row.kind) {
        (None, _) => String::new(),
        (Some(d), Kind::Boolean | Kind::Short | Kind::Int | Kind::Long | Kind::Double) => {
            d.to_string()
        }
        (Some(d), _) => format!("\"{d}\""),
    };
    let line = format!("#{} = {value}", toml_key(row.name));
    out.push_str(line.trim_end());
    out.push('\n');
}

/// A key as TOML wants it: in quotes where another key goes on where this one ends, because a
/// dotted key cannot be a value and a table at once.
fn toml_key(name: &str) -> String {
    let is_prefix = rows().iter().any(|other| {
        other
            .name
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.'))
    });
    match is_prefix {
        true => format!("\"{name}\""),
        false => name.to_owned(),
    }
}

fn wrap(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH && line.len() > 1 {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ConfigFile;
    use crate::load::{Inputs, load};

    #[test]
    fn the_file_in_the_repository_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/tidemark.toml");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == toml_document(),
            "config/tidemark.toml differs from the rows; write it anew with \
             `cargo run -- config docs > config/tidemark.toml`"
        );
    }

    #[test]
    fn the_document_loads_as_it_is_and_with_every_default_set() {
        let file = |text: &str| Inputs {
            file: Some(ConfigFile::new("tidemark.toml", text)),
            ..Inputs::default()
        };
        let untouched = load(&file(&toml_document())).unwrap();
        assert!(untouched.settings.values.set.is_empty());

        let is_setting =
            |line: &&str| line.starts_with('#') && !line.starts_with("# ") && *line != "#";
        let every_default: String = toml_document()
            .lines()
            .filter(is_setting)
            .filter(|line| !line.ends_with('='))
            .map(|line| format!("{}\n", &line[1..]))
            .collect();
        let all = load(&file(&every_default)).unwrap();
        let with_default = rows().iter().filter(|row| row.default.is_some()).count();
        assert_eq!(all.settings.values.set.len(), with_default);
        for (row, value, _) in all.settings.values.explain() {
            assert_eq!(value, row.default.as_deref(), "{}", row.name);
        }
    }
}
