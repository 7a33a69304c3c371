//! COMPAT.md tells the versions that the API table serves: its table is made from ours.

use std::fmt::Write;
use std::path::Path;

use tidemark_wire::ApiTable;

const BEGIN: &str = "<!-- made from the API table -->\n";
const END: &str = "<!-- end -->\n";
/// Set to write the table into COMPAT.md instead of comparing it.
const WRITE: &str = "TIDEMARK_TEST_WRITE";

fn table() -> String {
    let mut out = String::from("\n| key | API | versions | flexible from |\n|-|-|-|-|\n");
    for (api, served) in ApiTable::served_apis() {
        let versions = served.versions;
        let told = match served.min_advertised < versions.min {
            true => format!(" (told from {})", served.min_advertised),
            false => String::new(),
        };
        let flexible = match api.flexible_from {
            i16::MAX => "-".to_owned(),
            from => from.to_string(),
        };
        let (key, name) = (api.key.code(), api.name);
        let (min, max) = (versions.min, versions.max);
        writeln!(out, "| {key} | {name} | {min}-{max}{told} | {flexible} |").unwrap();
    }
    let unserved: Vec<&str> = ApiTable::all()
        .filter(|api| api.serves.is_none())
        .map(|api| api.name)
        .collect();
    let unserved = match unserved.is_empty() {
        true => "none".to_owned(),
        false => unserved.join(", "),
    };
    writeln!(out, "\nKnown to the table and not served: {unserved}.\n").unwrap();
    out
}

#[test]
fn the_versions_in_compat_md_are_those_that_are_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../COMPAT.md");
    let text = std::fs::read_to_string(&path).expect("COMPAT.md is at the root");
    let (before, rest) = text.split_once(BEGIN).expect("the table's first mark");
    let (found, after) = rest.split_once(END).expect("the table's last mark");
    let table = table();
    if std::env::var_os(WRITE).is_some() {
        let written = format!("{before}{BEGIN}{table}{END}{after}");
        std::fs::write(&path, written).expect("COMPAT.md can be written");
        return;
    }
    assert!(
        found == table,
        "COMPAT.md differs from the API table; write it anew with\n  \
         {WRITE}=1 cargo test -p tidemark-wire --test compat"
    );
}
