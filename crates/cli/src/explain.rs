//! `tidemark config explain`.

use serde_json::{Map, Value, json};
use tidemark_config::{Loaded, Source};

/// Every setting, its value in force and where it is from; then what there is to say.
pub(crate) fn explain(loaded: &Loaded) -> String {
    let values = &loaded.settings.values;
    let width = values
        .explain()
        .map(|(row, ..)| row.name.len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for (row, value, source) in values.explain() {
        let value = match value {
            Some("") => "\"\"",
            Some(value) => value,
            None => "-",
        };
        out.push_str(&format!("{:width$}  {value}  ({source})\n", row.name));
    }
    for note in &loaded.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    out
}

/// The same for programs: each setting's value, source and place under its name.
pub(crate) fn explain_json(loaded: &Loaded) -> String {
    let settings: Map<String, Value> = loaded
        .settings
        .values
        .explain()
        .map(|(row, value, source)| {
            let place = match &source {
                Source::Default => Value::Null,
                place => Value::String(place.to_string()),
            };
            let told = json!({ "value": value, "source": source.kind(), "place": place });
            (row.name.to_owned(), told)
        })
        .collect();
    let told = json!({ "settings": settings, "notes": loaded.notes });
    format!("{told:#}\n")
}

#[cfg(test)]
mod tests {
    use tidemark_config::{ConfigFile, Inputs, load, rows};

    use super::*;

    #[test]
    fn every_setting_is_told_with_its_place() {
        let file = ConfigFile::new("t.properties", "\nnum.partitions=3\nnum.io.threads=1\n");
        let inputs = Inputs {
            file: Some(file),
            ..Inputs::default()
        };
        let loaded = load(&inputs).unwrap();
        let text = explain(&loaded);
        let line = text
            .lines()
            .find(|l| l.starts_with("num.partitions "))
            .unwrap();
        assert!(line.ends_with("3  (t.properties:2)"), "{line}");
        let line = text.lines().find(|l| l.starts_with("node.id ")).unwrap();
        assert!(line.ends_with("0  (default)"), "{line}");
        assert_eq!(text.lines().count(), rows().len() + 1);
        assert!(text.ends_with("num.io.threads\n"), "{text}");

        let json: Value = serde_json::from_str(&explain_json(&loaded)).unwrap();
        assert_eq!(json["settings"]["num.partitions"]["value"], "3");
        assert_eq!(json["settings"]["num.partitions"]["source"], "file");
        assert_eq!(
            json["settings"]["num.partitions"]["place"],
            "t.properties:2"
        );
        assert_eq!(json["settings"]["node.id"]["place"], Value::Null);
        assert_eq!(json["notes"].as_array().unwrap().len(), 1);
    }
}
