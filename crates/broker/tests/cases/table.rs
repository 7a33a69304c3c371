//! The table of cases in docs/scenarios.md says which test shows which case: do they exist?

use std::collections::BTreeSet;
use std::path::Path;

/// Every number: each stands in one of the two tables, with tests or with the reason why it has none.
fn all_cases() -> BTreeSet<String> {
    let numbers = |letter: char, last: u32| (1..=last).map(move |n| format!("{letter}{n}"));
    let cases = numbers('A', 28).chain(numbers('M', 23));
    cases
        .chain(numbers('T', 16))
        .chain(["M11b".to_owned()])
        .collect()
}

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
    let mut missing = all_cases();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (cases, tests) = match cells[..] {
            ["", cases, _, tests, _, ""] => (cases, tests),
            ["", cases, _, _why, ""] => {
                for case in cases.split(", ") {
                    missing.remove(case);
                }
                continue;
            }
            _ => continue,
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
        "docs/scenarios.md names neither a test of {missing:?} nor why there is none"
    );
}

/// Every case that docs/security-cases.md has to have a row for.
const SECURITY_CASES: [&str; 24] = [
    "CVE-2017-12610",
    "CVE-2018-1288",
    "CVE-2018-17196",
    "CVE-2019-12399",
    "CVE-2021-22160",
    "CVE-2021-38153",
    "CVE-2022-24450",
    "CVE-2022-34917",
    "CVE-2023-25194",
    "CVE-2023-34455",
    "CVE-2023-47090",
    "CVE-2024-27309",
    "CVE-2024-31141",
    "CVE-2024-56128",
    "CVE-2025-27817",
    "CVE-2025-27818",
    "CVE-2025-27819",
    "CVE-2026-10143",
    "CVE-2026-110985",
    "CVE-2026-33557",
    "CVE-2026-33558",
    "CVE-2026-35554",
    "CVE-2026-58253",
    "Nisshi 696",
];

#[test]
fn every_security_case_has_tests_that_exist_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for folder in ["crates", "fuzz"] {
        functions(&root.join(folder), "rs", "fn ", &mut names);
    }
    functions(&root.join("tests/e2e"), "py", "def ", &mut names);
    let path = root.join("docs/security-cases.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let mut missing = BTreeSet::from(SECURITY_CASES);
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", cases, _, _, shown, ""] = cells[..] else {
            continue;
        };
        if matches!(cases, "case" | "-") {
            continue;
        }
        let tests: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        for name in &tests {
            assert!(
                names.contains(*name),
                "docs/security-cases.md: {cases}: there is no test {name}"
            );
        }
        assert!(
            !tests.is_empty() || shown.ends_with('.'),
            "docs/security-cases.md: {cases} has neither a test nor a reason"
        );
        missing.retain(|case| !cases.split([',', ' ']).any(|word| word == *case) && cases != *case);
    }
    assert!(
        missing.is_empty(),
        "docs/security-cases.md has no row for {missing:?}"
    );
    let cves = names.iter().filter(|name| name.starts_with("cve_"));
    let unnamed: Vec<&String> = cves.filter(|name| !text.contains(name.as_str())).collect();
    assert!(
        unnamed.is_empty(),
        "docs/security-cases.md does not name {unnamed:?}"
    );
}
