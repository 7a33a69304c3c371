//! The differences that are allowed: docs/differences.md, read back.
//!
//! Only its table rows count: `| id | APIs | fields | because | Kafka | what |`. A row allows a difference
//! in the named fields of the named APIs, on lines that cite its id. A field with a bracket is a part
//! of a path (`configs[retention.ms]`); the field `whole answer` stands for all of them. The column
//! `Kafka` says which versions of it show the difference: `all`, or `< 4.4`, `>= 4.2`; against others
//! the row does not count, and lines that cite it must not differ.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// One row.
#[derive(Clone, Debug)]
pub struct Allowed {
    pub apis: BTreeSet<String>,
    pub fields: BTreeSet<String>,
    /// A promise (P1..P14) or a KIP.
    pub because: String,
}

/// A version of Apache Kafka.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KafkaVersion(Vec<u32>);

impl std::str::FromStr for KafkaVersion {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<KafkaVersion> {
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        let numbers = numbers.with_context(|| format!("{text:?} is no version like 4.1.1"))?;
        Ok(KafkaVersion(numbers))
    }
}

/// What a cell of the column `Kafka` says of a version.
fn holds_for(cell: &str, version: &KafkaVersion) -> Result<bool> {
    if cell == "all" {
        return Ok(true);
    }
    match cell.split_once(' ') {
        Some(("<", bound)) => Ok(*version < bound.parse()?),
        Some((">=", bound)) => Ok(*version >= bound.parse()?),
        _ => bail!("{cell:?}: all, < VERSION or >= VERSION"),
    }
}

/// All rows by id.
#[derive(Debug, Default)]
pub struct Differences {
    rows: BTreeMap<String, Allowed>,
    /// Rows about other versions of Kafka.
    others: BTreeSet<String>,
}

impl Differences {
    /// # Errors
    /// For a row that names no promise and no KIP, or an id twice.
    pub fn parse(text: &str, version: &KafkaVersion) -> Result<Differences> {
        let mut rows = BTreeMap::new();
        let mut others = BTreeSet::new();
        for line in text.lines() {
            let cells: Vec<&str> = line.trim().split('|').map(str::trim).collect();
            let ["", id, apis, fields, because, kafka, what, ""] = cells[..] else {
                continue;
            };
            if id == "id" || id.starts_with('-') {
                continue;
            }
            ensure!(!what.is_empty(), "{id}: says nothing");
            ensure!(
                because.split([',', ' ']).any(is_promise_or_kip),
                "{id}: {because:?} names no promise (P1 to P14) and no KIP"
            );
            let allowed = Allowed {
                apis: list(apis),
                fields: list(fields),
                because: because.to_owned(),
            };
            let id = id.trim_matches('`').to_owned();
            ensure!(
                !rows.contains_key(&id) && !others.contains(&id),
                "{id} stands twice"
            );
            if holds_for(kafka, version).with_context(|| id.clone())? {
                rows.insert(id, allowed);
            } else {
                others.insert(id);
            }
        }
        Ok(Differences { rows, others })
    }

    /// Whether an id has a row, be it about another version of Kafka.
    pub fn knows(&self, id: &str) -> bool {
        self.rows.contains_key(id) || self.others.contains(id)
    }

    /// The row of an id.
    pub fn get(&self, id: &str) -> Option<&Allowed> {
        self.rows.get(id)
    }

    /// The id among `ids` that allows a difference in this field of this API.
    pub fn allowing<'a>(
        &self,
        ids: &'a [String],
        api: &str,
        path: &str,
        field: &str,
    ) -> Option<&'a str> {
        ids.iter()
            .find(|id| {
                self.rows.get(*id).is_some_and(|row| {
                    row.apis.contains(api)
                        && (row.fields.contains(field)
                            || row.fields.contains("whole answer")
                            || row
                                .fields
                                .iter()
                                .any(|part| part.contains('[') && path.contains(part.as_str())))
                })
            })
            .map(String::as_str)
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }
}

fn list(cell: &str) -> BTreeSet<String> {
    cell.split(',')
        .map(|item| item.trim().trim_matches('`').to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

fn is_promise_or_kip(word: &str) -> bool {
    let word = word.trim();
    let number = |prefix: &str| {
        word.strip_prefix(prefix)
            .and_then(|n| n.parse::<u32>().ok())
    };
    number("P").is_some_and(|n| (1..=14).contains(&n))
        || number("KIP-").is_some()
        || number("KAFKA-").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_allows_fields_of_apis() {
        let text = "# x\n| id | APIs | fields | because | Kafka | what |\n|-|-|-|-|-|-|\n\
                    | `a-b` | Fetch, Produce | `error_code`, `l[a]` | P10 | all | words |\n";
        let differences = Differences::parse(text, &version("4.1.1")).expect("it parses");
        let ids = ["a-b".to_owned()];
        assert_eq!(
            differences.allowing(&ids, "Fetch", "error_code", "error_code"),
            Some("a-b")
        );
        assert!(
            differences
                .allowing(&ids, "Fetch", "l[a].other", "other")
                .is_some()
        );
        assert_eq!(
            differences.allowing(&ids, "Fetch", "l[b].other", "other"),
            None
        );
        assert_eq!(
            differences.allowing(&ids, "EndTxn", "error_code", "error_code"),
            None
        );
    }

    fn version(text: &str) -> KafkaVersion {
        text.parse().expect("a version")
    }

    #[test]
    fn a_row_holds_for_the_versions_it_names() {
        let counts = |cell: &str, kafka: &str| {
            let text = format!("| `a` | Fetch | x | P1 | {cell} | words |");
            let differences = Differences::parse(&text, &version(kafka)).expect("it parses");
            assert!(differences.knows("a"));
            differences.get("a").is_some()
        };
        assert!(counts("all", "4.4.0"));
        assert!(counts("< 4.4", "4.1.1") && counts("< 4.4", "4.3.9") && !counts("< 4.4", "4.4.0"));
        assert!(counts(">= 4.2", "4.10.0") && !counts(">= 4.2", "4.1.1"));
        let wrong = "| `a` | Fetch | x | P1 | 4.4 | words |";
        assert!(Differences::parse(wrong, &version("4.4.0")).is_err());
    }

    #[test]
    fn a_row_without_a_promise_is_refused() {
        for because in ["", "because", "P15", "P0", "KIP-"] {
            let text = format!("| a | Fetch | x | {because} | all | words |");
            assert!(
                Differences::parse(&text, &version("4.1.1")).is_err(),
                "{because}"
            );
        }
        assert!(
            Differences::parse(
                "| a | Fetch | x | KIP-890, P1 | all | words |",
                &version("4.1.1")
            )
            .is_ok()
        );
    }
}
