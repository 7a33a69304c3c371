use std::fmt;

/// One thing that is wrong with the settings: what, where, the value seen and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    /// A file and line, an environment variable or a flag.
    pub place: String,
    /// The value seen; None where there is none or it may be a secret.
    pub value: Option<String>,
    pub mend: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        writeln!(f, "  where: {}", self.place)?;
        if let Some(value) = &self.value {
            writeln!(f, "  value: {}", clip(value))?;
        }
        write!(f, "  mend:  {}", self.mend)
    }
}

/// Why the settings were refused. Shows as text that fits one screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

/// More problems than fit a screen are counted, not shown.
const SHOWN: usize = 4;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().take(SHOWN).enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.problems.len() {
            n if n > SHOWN => write!(f, "\n... and {} more", n - SHOWN),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> ConfigError {
        ConfigError {
            problems: vec![problem],
        }
    }
}

fn clip(value: &str) -> String {
    const CHARS: usize = 120;
    // A value of several lines would hide what follows it.
    let line = value.replace(['\n', '\r'], " ");
    match line.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_problems_still_fit_a_screen() {
        let problem = Problem {
            what: "num.partitions must be a number".to_owned(),
            place: "tidemark.toml:3".to_owned(),
            value: Some("x\n".repeat(500)),
            mend: "write a number".to_owned(),
        };
        let error = ConfigError {
            problems: vec![problem; 30],
        };
        let text = error.to_string();
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.len() < 160), "{text}");
        assert!(text.ends_with("... and 26 more"), "{text}");
    }
}
