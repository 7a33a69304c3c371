//! Prints every advertised API and version that no test drove; exits 1 if there is one.
//!
//! `api-coverage DIR`, with the directory that the tests were given in
//! `TIDEMARK_TEST_API_COVERAGE_DIR`.

use std::path::Path;
use std::process::ExitCode;

use tidemark_testkit::coverage;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: api-coverage DIR");
        return ExitCode::from(2);
    };
    let driven = match coverage::driven(Path::new(&dir)) {
        Ok(driven) => driven,
        Err(e) => {
            eprintln!("api-coverage: {}: {e}", Path::new(&dir).display());
            return ExitCode::from(2);
        }
    };
    let missing = coverage::missing(&driven);
    for (name, key, version) in &missing {
        println!("not driven by any test: {name} ({key}) v{version}");
    }
    println!(
        "api-coverage: {} APIs and versions driven, {} advertised and not driven",
        driven.len(),
        missing.len()
    );
    match missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
