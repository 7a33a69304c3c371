//! The table of cases in docs/scenarios.md says which test shows which case: do they exist?

use std::collections::BTreeSet;
use std::path::Path;

/// Cases that must stand in the table.
const CASES: &str = "A1 A2 A3 A4 A5 A6 A7 A8 A9 A11 A12 A13 A14 A15 A16 A17 A18 A19 A20 A22 A23 A24 A26 A28 \
                     M1 M2 M3 M5 M6 M7 M9 M10 M11 M15 M16 M18 T4 T5 T7 T14 T15";

/// The names of all functions in files of this ending below a folder.
fn functions(folder: &Path, ending: &str, keyword: &str, names: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            functions(&path, ending, keyword, names);
        } else if path.extension().is_some_and(|e| e == ending) {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            for line in text.lines() {
                let Some((_, after)) = line.split_once(keyword) else {
                    continue;
                };
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
                let name = &after[..end];
                names.insert(name.strip_prefix("test_").unwrap_or(name).to_owned());
            }
        }
    }
}

#[test]
fn every_case_has_tests_and_they_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    functions(&root.join("crates"), "rs", "fn ", &mut names);
    functions(&root.join("tests/e2e"), "py", "def ", &mut names);
    let text = std::fs::read_to_string(root.join("docs/scenarios.md")).expect("the document");
    let mut missing: BTreeSet<&str> = CASES.split_whitespace().collect();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", cases, _, tests, _, ""] = cells[..] else {
            continue;
        };
        let mut tests = tests.split('`').skip(1).step_by(2).peekable();
        if tests.peek().is_none() {
            continue;
        }
        for name in tests {
            assert!(
                names.contains(name),
                "docs/scenarios.md: {cases}: there is no test {name}"
            );
        }
        for case in cases.split(", ") {
            missing.remove(case);
        }
    }
    assert!(
        missing.is_empty(),
        "docs/scenarios.md names no test of {missing:?}"
    );
}
