//! Reads a TOML file into dotted keys: `log.segment.bytes = 1`, `[log.segment]` with `bytes = 1`
//! and `"log.segment.bytes" = 1` all mean the same.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::Problem;

/// One assignment: dotted key, value, line from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) line: usize,
}

pub(crate) fn parse(path: &str, text: &str) -> Result<Vec<Assignment>, Problem> {
    let table = DeTable::parse(text).map_err(|error| Problem {
        what: format!("the file is not valid TOML: {}", error.message()),
        place: match error.span() {
            Some(span) => format!("{path}:{}", line_of(text, span.start)),
            None => path.to_owned(),
        },
        value: error
            .span()
            .and_then(|span| text.lines().nth(line_of(text, span.start) - 1))
            .filter(|line| !may_hold_a_secret(line))
            .map(|line| line.trim().to_owned()),
        mend: "write key = value; text goes in double quotes. `tidemark config docs` prints a file with every key".to_owned(),
    })?;
    let mut assignments = Vec::new();
    flatten(path, text, "", table.get_ref(), &mut assignments)?;
    // Tables come sorted by name; problems are told in the order of the file.
    assignments.sort_by_key(|assignment| assignment.line);
    Ok(assignments)
}

/// By its key: such a line is not shown.
fn may_hold_a_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["password", "secret", "key", "jaas", "credential", "token"]
        .iter()
        .any(|word| line.contains(word))
}

fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    text.as_bytes()[..end]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

fn flatten(
    path: &str,
    text: &str,
    prefix: &str,
    table: &DeTable<'_>,
    out: &mut Vec<Assignment>,
) -> Result<(), Problem> {
    for (key, value) in table {
        let line = line_of(text, key.span().start);
        let key = match prefix {
            "" => key.get_ref().to_string(),
            prefix => format!("{prefix}.{}", key.get_ref()),
        };
        if let DeValue::Table(inner) = value.get_ref() {
            flatten(path, text, &key, inner, out)?;
            continue;
        }
        let value = scalar(value).ok_or_else(|| Problem {
            what: format!("{key} has a value of a kind that no setting has"),
            place: format!("{path}:{line}"),
            value: text.lines().nth(line - 1).map(|l| l.trim().to_owned()),
            mend: "write a number, true or false, text in double quotes, or a list of these in brackets".to_owned(),
        })?;
        out.push(Assignment { key, value, line });
    }
    Ok(())
}

/// The text of a value; a list's items separated by commas, as Kafka writes them.
fn scalar(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(items) => {
            let items: Option<Vec<String>> = items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::Array(_) => None,
                    _ => scalar(item),
                })
                .collect();
            items.map(|items| items.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_quoted_and_nested_keys_mean_the_same() {
        let text = "a.b = 1_000\n\"max.connections\" = 0x10\n[log.segment]\nbytes = 5\n\
                    [x]\nt = \"text\"\nb = true\nf = 0.5\nl = [\n  \"p\",\n  \"q\",\n]\n";
        let found = parse("f.toml", text).unwrap();
        let found: Vec<(&str, &str, usize)> = found
            .iter()
            .map(|a| (a.key.as_str(), a.value.as_str(), a.line))
            .collect();
        let expected = [
            ("a.b", "1000", 1),
            ("max.connections", "16", 2),
            ("log.segment.bytes", "5", 4),
            ("x.t", "text", 6),
            ("x.b", "true", 7),
            ("x.f", "0.5", 8),
            ("x.l", "p,q", 9),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let error = parse("f.toml", "a = 1\nb = yes\n").unwrap_err();
        assert_eq!(error.place, "f.toml:2");
        assert_eq!(error.value.as_deref(), Some("b = yes"));
        let error = parse("f.toml", "a = 1\nwhen = 1979-05-27\n").unwrap_err();
        assert_eq!(error.place, "f.toml:2");
        assert!(parse("f.toml", "a = [[1]]").is_err());
        assert!(parse("f.toml", "a = 99999999999999999999").is_err());
    }
}
