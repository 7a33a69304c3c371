//! Other programs that take part, on other clients: each writes a file of the history by itself.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shared::{BANK, MIXED, SOURCE, TOPICS, target_of};

/// How long one may take to end what it is at.
const END: Duration = Duration::from_secs(90);

pub struct Program {
    pub name: String,
    pub history: PathBuf,
    child: Child,
}

impl Program {
    /// `command` is `NAME=COMMAND`; `number` counts the programs from 1, so that their values are their own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        command: &str,
        number: u64,
        broker: &str,
        dir: &Path,
        seed: u64,
    ) -> Result<Program> {
        let (name, command) = name_of(command)?;
        let partitions = |topic: &str| {
            TOPICS
                .iter()
                .find(|(t, _)| *t == topic)
                .map_or(1, |(_, p)| *p)
        };
        let history = dir.join(format!("history-{name}.jsonl"));
        let topics = format!(
            "{SOURCE}:{},{}:4,{MIXED}:{},{BANK}:{}",
            partitions(SOURCE),
            target_of(name),
            partitions(MIXED),
            partitions(BANK)
        );
        let log = File::create(dir.join(format!("{name}.log")))?;
        let mut words = command.split_whitespace();
        let child = Command::new(words.next().context("an empty command")?)
            .args(words)
            .args([broker, &history.display().to_string()])
            // Up to 2^53 every reader of JSON knows each number.
            .args([(number << 40).to_string(), (seed >> 12).to_string(), topics])
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {command}"))?;
        Ok(Program {
            name: name.to_owned(),
            history,
            child,
        })
    }

    /// Tells it to stop and waits until it has.
    ///
    /// # Errors
    /// When it had ended before, fails or does not end.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} had ended by itself ({status})", self.name);
        }
        drop(self.child.stdin.take());
        let since = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} ended with {status}", self.name),
                None if since.elapsed() > END => bail!("{} does not end", self.name),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Name and command of `NAME=COMMAND`.
///
/// # Errors
/// When it is not of that form.
pub fn name_of(program: &str) -> Result<(&str, &str)> {
    program
        .split_once('=')
        .with_context(|| format!("{program}: NAME=COMMAND is expected"))
}
