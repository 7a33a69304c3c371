//! Scripts as steps: each line once for every version it names.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::requests::key_of;
use crate::script::{Line, Script};

/// The versions that both brokers advertise, by API key.
pub type Common = BTreeMap<i16, (i16, i16)>;

#[derive(Clone, Debug)]
pub struct Step {
    pub line: Arc<Line>,
    /// The version of the request, for a verb that is a request of an API.
    pub version: i16,
    pub kind: StepKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// A request, its answer compared.
    Request,
    /// A request whose answer a later `await` compares.
    Start,
    /// The answer to a request that was started.
    Await,
    /// Bytes as they are, compared by what comes of them.
    Raw,
    /// What a client does between requests: nothing is compared.
    Between,
}

/// A script's steps, and what it asks for that not both brokers advertise.
pub struct Planned {
    pub steps: Vec<Step>,
    pub not_driven: Vec<String>,
}

/// Spreads a script's lines over versions. `v=` is a number, a list, a range `3..9`, `all`, `min`,
/// `max`, of the versions that both brokers advertise; without it, what the script's line
/// `versions VERB=N ...` says, else `max`.
pub fn plan(script: &Script, common: &Common) -> Result<Planned> {
    let mut planned = Planned {
        steps: Vec::new(),
        not_driven: Vec::new(),
    };
    let mut defaults: BTreeMap<String, String> = BTreeMap::new();
    for line in &script.lines {
        if line.verb == "versions" {
            defaults.clone_from(&line.named);
            for word in &line.words {
                let (verb, version) = word.split_once('=').context("versions verb=N")?;
                defaults.insert(verb.to_owned(), version.to_owned());
            }
            continue;
        }
        let line_at = || format!("{}.txt line {}", script.name, line.number);
        let wanted = line
            .get("v")
            .or(defaults.get(&line.verb).map(String::as_str));
        let (versions, absent) = versions(line, wanted, common).with_context(line_at)?;
        for version in versions {
            planned.steps.push(Step {
                line: Arc::new(line.clone()),
                version,
                kind: kind(line),
            });
        }
        if !absent.is_empty() {
            planned
                .not_driven
                .push(format!("{}: {} {absent}", line_at(), line.verb));
        }
    }
    Ok(planned)
}

fn kind(line: &Line) -> StepKind {
    match line.verb.as_str() {
        "await" => StepKind::Await,
        "raw" => StepKind::Raw,
        "settle" | "until-ended" | "topic" | "pause" | "close" => StepKind::Between,
        _ if line.get("start").is_some() => StepKind::Start,
        _ => StepKind::Request,
    }
}

fn versions(line: &Line, wanted: Option<&str>, common: &Common) -> Result<(Vec<i16>, String)> {
    let Some(key) = key_of(&line.verb) else {
        return Ok((vec![0], String::new()));
    };
    // Versions that nobody serves are sent all the same when it is that which is asked.
    if line.flag("force", false)? {
        let wanted = wanted.context("force=1 needs v=")?;
        return Ok((vec![wanted.parse()?], String::new()));
    }
    let Some((min, max)) = common.get(&key).copied() else {
        return Ok((Vec::new(), "(not advertised by both)".to_owned()));
    };
    let mut list = Vec::new();
    for part in wanted.unwrap_or("max").split(',') {
        match part {
            "max" => list.push(max),
            "min" => list.push(min),
            "all" => list.extend(min..=max),
            _ => match part.split_once("..") {
                Some((from, "")) => list.extend(from.parse::<i16>()?..=max),
                Some((from, to)) => list.extend(from.parse::<i16>()?..=to.parse::<i16>()?),
                None => list.push(part.parse().ok().with_context(|| format!("v={part}"))?),
            },
        }
    }
    if list.is_empty() {
        bail!("v= names no version");
    }
    let (served, absent): (Vec<i16>, Vec<i16>) =
        list.into_iter().partition(|v| (min..=max).contains(v));
    let absent: Vec<String> = absent.iter().map(|v| format!("v{v}")).collect();
    Ok((served, absent.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_spread_over_the_versions_it_names() {
        let script = Script::parse(
            "s",
            "versions produce=11\nproduce t/0\nfetch t/0 v=4,12..\nmetadata v=all\njoin v=9",
        )
        .expect("it parses");
        let common = Common::from([(0, (3, 13)), (1, (4, 13)), (3, (0, 1)), (11, (0, 5))]);
        let planned = plan(&script, &common).expect("a plan");
        let versions: Vec<(&str, i16)> = planned
            .steps
            .iter()
            .map(|s| (s.line.verb.as_str(), s.version))
            .collect();
        assert_eq!(
            versions,
            [
                ("produce", 11),
                ("fetch", 4),
                ("fetch", 12),
                ("fetch", 13),
                ("metadata", 0),
                ("metadata", 1)
            ]
        );
        assert_eq!(planned.not_driven, ["s.txt line 5: join v9"]);
    }
}
