//! What is printed: each step that differs with both answers, and the last line.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kafka_protocol::messages::ApiKey;

use crate::compare::{Comparison, Different};
use crate::differences::Differences;
use crate::requests::key_of;
use crate::script::Script;
use crate::side::{Answer, Outcome, Side};
use crate::steps::{Step, StepKind};
use crate::tree::Tree;

pub struct Report<'a> {
    allowed: &'a Differences,
    /// All scripts run: an allowed difference that no step shows is stale.
    is_whole: bool,
    verbose: bool,
    comparison: Comparison,
    steps: u32,
    different: u32,
    explained: u32,
    unexplained: u32,
    used: BTreeSet<String>,
    /// How often Kafka's transient codes were repeated away, by code.
    repeated: BTreeMap<i64, usize>,
    not_driven: Vec<String>,
    broken: u32,
}

impl<'a> Report<'a> {
    pub fn new(allowed: &'a Differences, is_whole: bool, verbose: bool) -> Report<'a> {
        Report {
            allowed,
            is_whole,
            verbose,
            comparison: Comparison::default(),
            steps: 0,
            different: 0,
            explained: 0,
            unexplained: 0,
            used: BTreeSet::new(),
            repeated: BTreeMap::new(),
            not_driven: Vec::new(),
            broken: 0,
        }
    }

    pub fn not_driven(&mut self, lines: &[String]) {
        self.not_driven.extend_from_slice(lines);
    }

    pub fn script(
        &mut self,
        script: &Script,
        steps: &[Step],
        ours: (&[Result<Answer>], &Side),
        theirs: (&[Result<Answer>], &Side),
    ) {
        let before = (self.steps, self.different);
        for (index, step) in steps.iter().enumerate() {
            match (ours.0.get(index), theirs.0.get(index)) {
                (Some(Ok(a)), Some(Ok(b))) => self.step(script, step, (a, ours.1), (b, theirs.1)),
                (a, b) => {
                    // The rest of the script cannot be compared.
                    self.broken += 1;
                    println!("{}: cannot go on:", at(script, step));
                    for (who, answer) in [("tidemark", a), ("kafka", b)] {
                        if let Some(Err(e)) = answer {
                            println!("  {who}: {e:#}");
                        }
                    }
                    break;
                }
            }
        }
        println!(
            "{}: steps={} differences={}",
            script.name,
            self.steps - before.0,
            self.different - before.1
        );
    }

    fn step(
        &mut self,
        script: &Script,
        step: &Step,
        ours: (&Answer, &Side),
        theirs: (&Answer, &Side),
    ) {
        if matches!(step.kind, StepKind::Between | StepKind::Start) {
            return;
        }
        self.steps += 1;
        for code in &theirs.0.repeated {
            *self.repeated.entry(*code).or_default() += 1;
        }
        let different = self.differences(ours, theirs);
        if self.verbose {
            println!("{}", at(script, step));
            println!("  tidemark {:?}", ours.0.outcome);
            println!("  kafka    {:?}", theirs.0.outcome);
        }
        // Of rows about other versions of Kafka nothing is expected.
        let ids: Vec<String> = (step.line.allowed.iter())
            .filter(|id| self.allowed.get(id).is_some() || !self.allowed.knows(id))
            .cloned()
            .collect();
        if different.is_empty() {
            if !ids.is_empty() {
                self.unexplained += 1;
                println!("{}: does not differ, yet cites {ids:?}", at(script, step));
            }
            return;
        }
        self.different += 1;
        let api = api_name(script, step);
        let mut explanations = BTreeSet::new();
        let mut all_explained = true;
        for field in &different {
            match self.allowed.allowing(&ids, &api, &field.path, &field.field) {
                Some(id) => drop(explanations.insert(id.to_owned())),
                None => all_explained = false,
            }
        }
        if all_explained {
            self.explained += 1;
        } else {
            self.unexplained += 1;
        }
        let because: Vec<String> = explanations
            .iter()
            .map(|id| {
                let row = self.allowed.get(id);
                format!("{id} ({})", row.map_or("", |row| row.because.as_str()))
            })
            .collect();
        println!(
            "{}: {}",
            at(script, step),
            match all_explained {
                true => format!("differs, explained by {}", because.join(", ")),
                false => format!("DIFFERS, API {api}"),
            }
        );
        print_fields(&different);
        if !all_explained && !self.verbose {
            println!("  tidemark answered {}", short(&ours.0.outcome));
            println!("  kafka answered    {}", short(&theirs.0.outcome));
        }
        self.used.extend(explanations);
    }

    fn differences(&mut self, ours: (&Answer, &Side), theirs: (&Answer, &Side)) -> Vec<Different> {
        let tree = |answer: &Answer| match &answer.outcome {
            Outcome::Tree(tree) => tree.clone(),
            Outcome::Said(said) => Tree::Leaf(said.clone()),
            Outcome::Between => Tree::Null,
        };
        let mut different = match (&ours.0.outcome, &theirs.0.outcome) {
            (Outcome::Said(a), Outcome::Tree(_)) => vec![whole(a, "an answer")],
            (Outcome::Tree(_), Outcome::Said(b)) => vec![whole("an answer", b)],
            _ => self.comparison.compare(
                (&tree(ours.0), &ours.1.names),
                (&tree(theirs.0), &theirs.1.names),
            ),
        };
        if let Some(code) = ours.0.repeated.first() {
            // Kafka may take its time; here everything is settled when it is answered.
            different.push(Different {
                path: "transient".to_owned(),
                field: "transient".to_owned(),
                tidemark: Some(format!("{code}, {} times", ours.0.repeated.len())),
                kafka: None,
            });
        }
        different
    }

    /// Prints the end. True if everything is explained.
    pub fn finish(mut self) -> bool {
        for (code, times) in &self.repeated {
            println!("kafka answered {code} {times} times and was asked again");
        }
        for line in &self.not_driven {
            println!("not driven: {line}");
        }
        if self.is_whole {
            for id in self.allowed.ids() {
                if !self.used.contains(id) {
                    self.unexplained += 1;
                    println!("{id} is allowed, and no step shows it");
                }
            }
        }
        if self.broken > 0 {
            println!("{} scripts did not run to their end", self.broken);
        }
        println!(
            "differential: steps={} differences={} explained={} unexplained={}",
            self.steps,
            self.different,
            self.explained,
            self.unexplained + self.broken
        );
        self.unexplained == 0 && self.broken == 0 && self.steps > 0
    }
}

/// One line a field; of an element that only one side has, one line for all its fields.
fn print_fields(different: &[Different]) {
    let mut last_parent = None;
    for field in different {
        let parent = field.path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let missing = match (&field.tidemark, &field.kafka) {
            (None, _) => "tidemark",
            (_, None) => "kafka",
            _ => {
                println!(
                    "  {}: tidemark {}, kafka {}",
                    field.path,
                    quoted(field.tidemark.as_deref()),
                    quoted(field.kafka.as_deref())
                );
                continue;
            }
        };
        if last_parent != Some((parent, missing)) {
            let value = field.tidemark.as_ref().or(field.kafka.as_ref());
            println!(
                "  {}: {}, {missing} has none",
                field.path,
                quoted(value.map(String::as_str))
            );
            last_parent = Some((parent, missing));
        }
    }
}

fn quoted(value: Option<&str>) -> &str {
    match value {
        None => "has none",
        Some("") => "\"\"",
        Some(text) => text,
    }
}

fn whole(tidemark: &str, kafka: &str) -> Different {
    Different {
        path: "answer".to_owned(),
        field: "answer".to_owned(),
        tidemark: Some(tidemark.to_owned()),
        kafka: Some(kafka.to_owned()),
    }
}

fn at(script: &Script, step: &Step) -> String {
    let version = match key_of(&step.line.verb) {
        Some(_) => format!(" v{}", step.version),
        None => String::new(),
    };
    format!(
        "{}.txt:{}{version}: {}",
        script.name, step.line.number, step.line.text
    )
}

/// The API whose answer the step compares.
fn api_name(script: &Script, step: &Step) -> String {
    let line = &*step.line;
    let key = match line.verb.as_str() {
        "await" => script
            .lines
            .iter()
            .find(|l| l.get("start") == line.words.first().map(String::as_str))
            .and_then(|l| key_of(&l.verb)),
        "call" => line.get("key").and_then(|k| k.parse().ok()),
        verb => key_of(verb),
    };
    match key.map(ApiKey::try_from) {
        Some(Ok(api)) => format!("{api:?}"),
        _ => line.verb.clone(),
    }
}

fn short(outcome: &Outcome) -> String {
    let text = match outcome {
        Outcome::Tree(tree) => show(tree),
        Outcome::Said(said) => said.clone(),
        Outcome::Between => String::new(),
    };
    match text.char_indices().nth(900) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text,
    }
}

fn show(tree: &Tree) -> String {
    let join = |parts: Vec<String>| parts.join(", ");
    match tree {
        Tree::Null => "null".to_owned(),
        Tree::Leaf(text) if text.is_empty() => "\"\"".to_owned(),
        Tree::Leaf(text) => text.clone(),
        Tree::Bytes(bytes) => format!("{:?}", bytes::Bytes::from(bytes.clone())),
        Tree::List(elements) => format!("[{}]", join(elements.iter().map(show).collect())),
        Tree::Struct(fields) => {
            let fields = fields.iter().map(|(n, t)| format!("{n}: {}", show(t)));
            format!("{{{}}}", join(fields.collect()))
        }
    }
}
