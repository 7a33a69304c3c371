//! The differences that are allowed: docs/differences.md, read back.
//!
//! Only its table rows count: `| id | APIs | fields | because | what |`. A row allows a difference
//! in the named fields of the named APIs, on lines that cite its id. A field with a bracket is a part
//! of a path (`configs[retention.ms]`); the field `whole answer` stands for all of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

/// One row.
#[derive(Clone, Debug)]
pub struct Allowed {
    pub apis: BTreeSet<String>,
    pub fields: BTreeSet<String>,
    /// A promise (P1..P14) or a KIP.
    pub because: String,
}

/// All rows by id.
#[derive(Debug, Default)]
pub struct Differences {
    rows: BTreeMap<String, Allowed>,
}

impl Differences {
    /// # Errors
    /// For a row that names no promise and no KIP, or an id twice.
    pub fn parse(text: &str) -> Result<Differences> {
        let mut rows = BTreeMap::new();
        for line in text.lines() {
            let cells: Vec<&str> = line.trim().split('|').map(str::trim).collect();
            let ["", id, apis, fields, because, what, ""] = cells[..] else {
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
                rows.insert(id.clone(), allowed).is_none(),
                "{id} stands twice"
            );
        }
        Ok(Differences { rows })
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
        let text = "# x\n| id | APIs | fields | because | what |\n|-|-|-|-|-|\n\
                    | `a-b` | Fetch, Produce | `error_code`, `l[a]` | P10 | words |\n";
        let differences = Differences::parse(text).expect("it parses");
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

    #[test]
    fn a_row_without_a_promise_is_refused() {
        for because in ["", "because", "P15", "P0", "KIP-"] {
            let text = format!("| a | Fetch | x | {because} | words |");
            assert!(Differences::parse(&text).is_err(), "{because}");
        }
        assert!(Differences::parse("| a | Fetch | x | KIP-890, P1 | words |").is_ok());
    }
}
