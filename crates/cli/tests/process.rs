//! The tidemark process as a shell or a supervisor sees it.

mod support;

use std::net::{TcpListener, TcpStream};

use serde_json::Value;
use support::{Started, run, tidemark};

#[test]
fn a_signal_ends_it_cleanly() {
    for signal in ["-TERM", "-INT"] {
        let dir = tempfile::tempdir().unwrap();
        let started = Started::new(&dir.path().join("data"));
        TcpStream::connect(started.address()).expect("it listens where the banner says");
        assert_eq!(
            started.banner["security"]
                .as_str()
                .unwrap()
                .split(':')
                .next(),
            Some("OPEN")
        );
        assert_eq!(started.end(signal), Some(0), "{signal}");
    }
}

#[test]
fn a_port_in_use_is_a_failed_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let (output, out, err) = run(&[
        "--listen",
        &address,
        "--data-dir",
        data_dir.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.contains(&address) && err.contains("--listen HOST:PORT"),
        "{err}"
    );
    assert_eq!(out, "");
}

#[test]
fn kafkas_shipped_server_properties_starts() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../config/tests/data/server.properties"
    );
    let dir = tempfile::tempdir().unwrap();
    // Only the port and the directory are the test's own.
    let started = Started::with(&dir.path().join("data"), &["--config", file]);
    assert_eq!(started.banner["node_id"], 1);
    assert_eq!(
        started.banner["listeners"][0]["advertised"],
        "localhost:9092"
    );
    assert_eq!(started.end("-TERM"), Some(0));
}

#[test]
fn a_data_directory_in_use_is_a_failed_start() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let first = Started::new(&data_dir);
    // At the port of the first as well: the directory comes first, so that a second broker on the
    // same data is never seen to listen.
    for listen in ["127.0.0.1:0", first.address()] {
        let (output, out, err) =
            run(&["--listen", listen, "--data-dir", data_dir.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            err.contains("in use") && err.contains("--data-dir"),
            "{err}"
        );
        assert_eq!(out, "");
    }
    assert_eq!(first.end("-TERM"), Some(0));
}

#[test]
fn a_restart_keeps_the_cluster_and_refuses_another_node_id() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let first = Started::new(&data_dir);
    let cluster_id = first.banner["cluster_id"].clone();
    assert_eq!(first.end("-TERM"), Some(0));
    let again = Started::new(&data_dir);
    assert_eq!(again.banner["cluster_id"], cluster_id);
    assert_eq!(again.end("-TERM"), Some(0));

    let data_dir = data_dir.to_str().unwrap();
    let (output, _, err) = run(&[
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data_dir,
        "--node-id",
        "5",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("node.id"), "{err}");
}

#[test]
fn wrong_settings_are_a_failed_start_on_one_screen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.toml");
    std::fs::write(&file, "\nnum.partition = 3\n").unwrap();
    let (output, _, err) = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.contains("t.toml:2") && err.contains("did you mean num.partitions?"),
        "{err}"
    );
    assert!(err.lines().count() <= 24, "{err}");

    let output = tidemark(&[]).env("TIDEMARK_LOG", "=[").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("environment variable TIDEMARK_LOG"), "{err}");
}

#[test]
fn the_settings_explain_themselves() {
    let (output, out, _) = run(&["config", "explain", "--num-partitions", "3"]);
    assert!(output.status.success());
    assert!(out.contains("3  (flag --num-partitions)"), "{out}");
    let (_, out, _) = run(&["config", "explain", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["settings"]["node.id"]["value"], "0");
    let (_, out, _) = run(&["config", "docs"]);
    assert!(out.contains("#num.partitions = 1"), "{out}");
}

#[test]
fn it_tells_its_version_and_how_to_use_it() {
    let (output, out, _) = run(&["--version"]);
    assert!(output.status.success());
    assert_eq!(out, format!("tidemark {}\n", env!("CARGO_PKG_VERSION")));
    let (output, out, _) = run(&["--help"]);
    assert!(output.status.success());
    assert!(out.contains("First steps:"), "{out}");
}
