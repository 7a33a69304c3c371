//! A broker as a child process on loopback: started, killed with SIGKILL and started again, by pid.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::Rng;

/// How long a start may take. A JVM on a busy machine needs its time.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The child and how to start it again over the same data.
pub struct BrokerProcess {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    port: u16,
    log: PathBuf,
    child: Option<Child>,
}

impl BrokerProcess {
    /// `command` is split at spaces; `{port}` and `{data}` in it are filled in. It must end in the broker itself
    /// (a wrapper has to `exec` it), because the pid that it gets is the one that is killed.
    ///
    /// # Errors
    /// When the command is empty.
    pub fn new(command: &str, port: u16, data: &Path, log: &Path) -> Result<BrokerProcess> {
        let command: Vec<String> = command
            .split_whitespace()
            .map(|word| {
                word.replace("{port}", &port.to_string())
                    .replace("{data}", &data.display().to_string())
            })
            .collect();
        if command.is_empty() {
            bail!("the broker command is empty");
        }
        Ok(BrokerProcess {
            command,
            environment: Vec::new(),
            port,
            log: log.to_path_buf(),
            child: None,
        })
    }

    /// A variable of the environment of every start to come.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the process without waiting for it to serve.
    ///
    /// # Errors
    /// When it cannot be executed or the log cannot be opened.
    pub fn spawn(&mut self) -> Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot open {}", self.log.display()))?;
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start the broker: {}", self.command.join(" ")))?;
        // Whoever started this program can end the broker too, should the program be killed.
        std::fs::write(self.log.with_extension("pid"), child.id().to_string())?;
        self.child = Some(child);
        Ok(())
    }

    /// Starts it and waits until its port accepts connections.
    ///
    /// # Errors
    /// When it ends early or does not serve in time.
    pub fn start(&mut self) -> Result<()> {
        self.spawn()?;
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                bail!(
                    "the broker ended at start ({status}); see {}",
                    self.log.display()
                );
            }
            if started.elapsed() > START_LIMIT {
                bail!(
                    "the broker does not serve port {} after {START_LIMIT:?}",
                    self.port
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Errors
    /// When it had ended by itself: then the kill proves nothing.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let ended = child.try_wait()?;
        if ended.is_none() {
            child.kill()?;
            child.wait()?;
        }
        // Before anything is said of it: its number may soon be another process's.
        self.forget_pid();
        if let Some(status) = ended {
            bail!(
                "the broker had ended by itself ({status}); see {}",
                self.log.display()
            );
        }
        Ok(())
    }

    fn forget_pid(&self) {
        let _ = std::fs::remove_file(self.log.with_extension("pid"));
    }

    /// False when it was never started, was killed, or has ended by itself.
    pub fn is_running(&mut self) -> bool {
        let running = self.child.as_mut().map(Child::try_wait);
        matches!(running, Some(Ok(None)))
    }

    /// Lines of the log that tell of a Rust panic.
    pub fn panics(&self) -> Vec<String> {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| line.contains("panicked"))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            self.forget_pid();
        }
    }
}

/// A loopback port that is free now, below the range that outgoing connections use, so that no client takes it
/// while the broker is down.
///
/// # Errors
/// When none was found.
pub fn free_port() -> Result<u16> {
    let mut random = rand::rng();
    for _ in 0..200 {
        let port = random.random_range(15_000..30_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between 15000 and 30000")
}
