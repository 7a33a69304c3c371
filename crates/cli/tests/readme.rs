//! README shows programs that are tested elsewhere: it must show those very texts.

use std::path::Path;

#[test]
fn readme_shows_the_programs_that_the_clients_suite_plays() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for (language, file) in [
        ("java", "tests/clients/java/Transfer.java"),
        ("go", "tests/clients/franz-go/snippet/transfer.go"),
        ("js", "tests/clients/kafkajs/transfer.mjs"),
    ] {
        let program = std::fs::read_to_string(root.join(file)).unwrap();
        let shown = format!("```{language}\n{}\n```", program.trim_end());
        assert!(
            readme.contains(&shown),
            "README.md does not show {file} as it is"
        );
    }
}
