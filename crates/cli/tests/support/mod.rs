//! The tidemark process, for tests of it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

pub fn tidemark(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    command.args(arguments).env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEMARK_") {
            command.env_remove(name);
        }
    }
    command
}

pub fn run(arguments: &[&str]) -> (Output, String, String) {
    let output = tidemark(arguments).output().expect("tidemark runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

/// A broker that was started on a free port and has said that it is ready.
pub struct Started {
    child: Child,
    pub banner: Value,
    _stdout: BufReader<ChildStdout>,
}

impl Started {
    pub fn new(data_dir: &Path) -> Started {
        Started::with(data_dir, &[])
    }

    pub fn with(data_dir: &Path, more: &[&str]) -> Started {
        let data_dir = data_dir.to_str().unwrap();
        let flags = ["--listen", "127.0.0.1:0", "--data-dir", data_dir, "--json"];
        let mut child = tidemark(&[&flags, more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tidemark runs");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut why = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut why);
            panic!("tidemark did not start: {why}");
        }
        Started {
            child,
            banner: serde_json::from_str(&line).unwrap(),
            _stdout: stdout,
        }
    }

    pub fn address(&self) -> &str {
        self.banner["listeners"][0]["address"].as_str().unwrap()
    }

    /// Sends a signal and gives the exit code.
    pub fn end(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A test that fails leaves nothing behind.
        let _it_may_have_ended = self.child.kill();
        let _ = self.child.wait();
    }
}
