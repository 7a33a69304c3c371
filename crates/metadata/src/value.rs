//! A setting's kind and check, for topic configs here and for the broker's settings.

use std::fmt;

/// Kafka's kinds of settings, with DescribeConfigs' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    String,
    Int,
    Short,
    Long,
    Double,
    /// Values separated by commas.
    List,
    /// The name of a Java class; Tidemark reads it as text.
    Class,
    Password,
}

impl Kind {
    /// `config_type` in DescribeConfigs (KIP-569).
    pub const fn wire_code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }

    /// The word used in documents and error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::String => "string",
            Kind::Int => "int",
            Kind::Short => "short",
            Kind::Long => "long",
            Kind::Double => "double",
            Kind::List => "list",
            Kind::Class => "class",
            Kind::Password => "password",
        }
    }

    const fn bounds(self) -> (i64, i64) {
        match self {
            Kind::Short => (i16::MIN as i64, i16::MAX as i64),
            Kind::Int => (i32::MIN as i64, i32::MAX as i64),
            _ => (i64::MIN, i64::MAX),
        }
    }
}

/// Which values of a kind are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    /// A range, or one number outside it that means "default" or "off".
    BetweenOr(i64, i64, i64),
    Fraction(f64, f64),
    /// One of these words, or for a list only these words.
    OneOf(&'static [&'static str]),
    /// A string or list that is not empty.
    NotEmpty,
    /// Kafka's throttled-replica lists: `partition:broker` pairs, or `*`.
    ThrottledReplicas,
    /// `always`, `interval:` and a number of milliseconds, or `os`.
    JournalSync,
}

impl fmt::Display for Check {
    /// The allowed values, in words for documents; empty for `Any`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Check::Any => Ok(()),
            Check::AtLeast(min) => write!(f, "{min} or more"),
            Check::Between(min, max) => write!(f, "{min} to {max}"),
            Check::BetweenOr(min, max, also) => write!(f, "{min} to {max}, or {also}"),
            Check::Fraction(min, max) => write!(f, "{min} to {max}"),
            Check::OneOf(words) => f.write_str(&words.join(", ")),
            Check::NotEmpty => f.write_str("not empty"),
            Check::ThrottledReplicas => f.write_str("partition:broker, ... or *"),
            Check::JournalSync => f.write_str("always, interval:<ms>, os"),
        }
    }
}

impl Kind {
    /// Checks a value and gives it back in the one form it is stored and shown in; the error says
    /// what is wrong with it, in the words that follow "Invalid value ...: ".
    pub fn check(self, check: Check, value: &str) -> Result<String, String> {
        let text = value.trim();
        match self {
            Kind::Boolean => match text.to_ascii_lowercase().as_str() {
                "true" => Ok("true".to_owned()),
                "false" => Ok("false".to_owned()),
                _ => Err("Expected value to be either true or false".to_owned()),
            },
            Kind::Short | Kind::Int | Kind::Long => {
                let (min, max) = self.bounds();
                let number = text
                    .parse::<i64>()
                    .ok()
                    .filter(|n| (min..=max).contains(n))
                    .ok_or_else(|| {
                        format!("Not a number of type {}", self.name().to_ascii_uppercase())
                    })?;
                let good = match check {
                    Check::AtLeast(min) => number >= min,
                    Check::Between(min, max) => (min..=max).contains(&number),
                    Check::BetweenOr(min, max, also) => {
                        (min..=max).contains(&number) || number == also
                    }
                    _ => true,
                };
                match good {
                    true => Ok(number.to_string()),
                    false => Err(format!("Value must be {check}")),
                }
            }
            Kind::Double => {
                let number = text
                    .parse::<f64>()
                    .ok()
                    .filter(|n| n.is_finite())
                    .ok_or_else(|| "Not a number of type DOUBLE".to_owned())?;
                match check {
                    Check::Fraction(min, max) if !(min..=max).contains(&number) => {
                        Err(format!("Value must be {check}"))
                    }
                    _ => Ok(number.to_string()),
                }
            }
            Kind::List => {
                let items = list_items(text);
                match check {
                    Check::NotEmpty if items.is_empty() => Err("The list is empty".to_owned()),
                    Check::OneOf(words) => match items.iter().find(|i| !words.contains(i)) {
                        Some(item) => Err(format!("'{item}' is not one of: {check}")),
                        None => Ok(items.join(",")),
                    },
                    Check::ThrottledReplicas => match throttled_replicas(&items) {
                        true => Ok(items.join(",")),
                        false => Err(format!("Value must be {check}")),
                    },
                    _ => Ok(items.join(",")),
                }
            }
            Kind::String | Kind::Class | Kind::Password => match check {
                Check::NotEmpty if text.is_empty() => Err("The value is empty".to_owned()),
                Check::OneOf(words) if !words.contains(&text) => {
                    Err(format!("Value must be one of: {check}"))
                }
                Check::JournalSync if !is_journal_sync(text) => {
                    Err(format!("Value must be one of: {check} (1 to 60000)"))
                }
                _ => Ok(text.to_owned()),
            },
        }
    }
}

/// The items of a list setting: separated by commas, blanks around them dropped.
pub(crate) fn list_items(text: &str) -> Vec<&str> {
    match text.trim() {
        "" => Vec::new(),
        text => text.split(',').map(str::trim).collect(),
    }
}

fn is_journal_sync(text: &str) -> bool {
    let interval = |ms: &str| ms.parse::<u64>().is_ok_and(|ms| (1..=60_000).contains(&ms));
    matches!(text, "always" | "os") || text.strip_prefix("interval:").is_some_and(interval)
}

fn throttled_replicas(items: &[&str]) -> bool {
    let pair = |item: &&str| {
        item.split_once(':')
            .is_some_and(|(p, b)| p.parse::<u32>().is_ok() && b.parse::<u32>().is_ok())
    };
    items == ["*"] || items == ["none"] || items.iter().all(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_brought_to_one_form() {
        let ok = [
            (Kind::Boolean, Check::Any, " TRUE ", "true"),
            (Kind::Int, Check::AtLeast(0), " 007", "7"),
            (Kind::Int, Check::BetweenOr(1, 9, -1), "-1", "-1"),
            (
                Kind::Long,
                Check::Any,
                "9223372036854775807",
                "9223372036854775807",
            ),
            (Kind::Double, Check::Fraction(0.0, 1.0), "0.50", "0.5"),
            (Kind::List, Check::OneOf(&["a", "b"]), " b , a ", "b,a"),
            (Kind::List, Check::OneOf(&["a", "b"]), "", ""),
            (Kind::List, Check::ThrottledReplicas, "0:1, 1:2", "0:1,1:2"),
            (Kind::String, Check::OneOf(&["x"]), " x", "x"),
            (
                Kind::String,
                Check::JournalSync,
                "interval:50",
                "interval:50",
            ),
        ];
        for (kind, check, given, stored) in ok {
            assert_eq!(kind.check(check, given), Ok(stored.to_owned()), "{given}");
        }
        let wrong = [
            (Kind::Boolean, Check::Any, "yes"),
            (Kind::Short, Check::Any, "32768"),
            (Kind::Int, Check::Any, "2147483648"),
            (Kind::Int, Check::AtLeast(0), "-1"),
            (Kind::Int, Check::BetweenOr(1, 9, -1), "0"),
            (Kind::Long, Check::Any, "1e3"),
            (Kind::Double, Check::Any, "NaN"),
            (Kind::Double, Check::Fraction(0.0, 1.0), "1.1"),
            (Kind::List, Check::OneOf(&["a"]), "a,"),
            (Kind::List, Check::NotEmpty, " "),
            (Kind::List, Check::ThrottledReplicas, "0:a"),
            (Kind::String, Check::OneOf(&["x"]), "X"),
            (Kind::String, Check::JournalSync, "interval:0"),
            (Kind::String, Check::JournalSync, "interval:60001"),
            (Kind::String, Check::JournalSync, "never"),
        ];
        for (kind, check, given) in wrong {
            assert!(kind.check(check, given).is_err(), "{given}");
        }
    }
}
