//! Two answers, field by field.
//!
//! What a broker draws (producer ids, member ids, topic ids, session ids, its cluster's id) is
//! bound at first sight: from then on the two values stand for each other. Times near now are one
//! value. Free are: error messages and other prose, throttle times, and the order of lists whose elements have names.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::tree::Tree;

/// What is known of a broker when its answers are read.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub port: u16,
    pub topics: HashMap<Uuid, String>,
    /// In the order of their first mention, which is that of the script and so the same on both sides.
    producers: HashMap<i64, usize>,
}

impl Names {
    pub fn new(port: u16) -> Names {
        Names {
            port,
            ..Names::default()
        }
    }

    /// The next script counts its own, also when this one has not come to its end on both sides.
    pub fn forget_producers(&mut self) {
        self.producers.clear();
    }

    /// A producer id that the broker has drawn.
    pub fn producer(&mut self, id: i64) {
        let next = self.producers.len();
        self.producers.entry(id).or_insert(next);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Producer,
    Member,
    Topic,
    Session,
    Cluster,
}

/// A field's value as it is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Value {
    text: String,
    drawn: Option<Kind>,
}

/// A field that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Different {
    /// Names and keys from the response down to the field.
    pub path: String,
    /// The field's own name.
    pub field: String,
    pub tidemark: Option<String>,
    pub kafka: Option<String>,
}

/// Which drawn values stand for each other.
#[derive(Default)]
pub struct Comparison {
    to_kafka: HashMap<(Kind, String), String>,
    to_tidemark: HashMap<(Kind, String), String>,
}

impl Comparison {
    /// The fields that differ.
    pub fn compare(&mut self, tidemark: (&Tree, &Names), kafka: (&Tree, &Names)) -> Vec<Different> {
        let ours = flatten(tidemark.0, tidemark.1);
        let mut theirs = flatten(kafka.0, kafka.1);
        let mut different = Vec::new();
        for (path, value) in ours {
            match theirs.remove(&path) {
                Some(other) if self.same(&value, &other) => {}
                other => different.push(difference(path, Some(value), other)),
            }
        }
        different.extend(
            theirs
                .into_iter()
                .map(|(path, value)| difference(path, None, Some(value))),
        );
        different.sort_by(|a, b| a.path.cmp(&b.path));
        different
    }

    fn same(&mut self, ours: &Value, theirs: &Value) -> bool {
        let (Some(kind), true) = (ours.drawn, ours.drawn == theirs.drawn) else {
            return ours == theirs;
        };
        let there = (kind, ours.text.clone());
        let back = (kind, theirs.text.clone());
        match (self.to_kafka.get(&there), self.to_tidemark.get(&back)) {
            (None, None) => {
                self.to_kafka.insert(there, theirs.text.clone());
                self.to_tidemark.insert(back, ours.text.clone());
                true
            }
            (Some(bound), _) => *bound == theirs.text,
            _ => false,
        }
    }
}

fn difference(path: String, tidemark: Option<Value>, kafka: Option<Value>) -> Different {
    let last = path.rsplit('.').next().unwrap_or(&path);
    let field = last.split(['[', '#']).next().unwrap_or(last).to_owned();
    Different {
        path,
        field,
        tidemark: tidemark.map(|v| v.text),
        kafka: kafka.map(|v| v.text),
    }
}

fn flatten(tree: &Tree, names: &Names) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    walk(tree, "answer", "answer".to_owned(), names, &mut values);
    values
}

fn walk(
    tree: &Tree,
    field: &str,
    path: String,
    names: &Names,
    values: &mut BTreeMap<String, Value>,
) {
    match tree {
        Tree::Null => put(values, path, "null"),
        Tree::Leaf(text) => {
            let value = value(field, text, names);
            insert(values, path, value);
        }
        Tree::Bytes(bytes) => put(
            values,
            path,
            &format!("{:?}", bytes::Bytes::from(bytes.clone())),
        ),
        Tree::List(elements) => {
            if elements.is_empty() {
                put(values, path, "[]");
                return;
            }
            for (index, element) in elements.iter().enumerate() {
                let key = key_of(field, element, names).unwrap_or_else(|| index.to_string());
                walk(element, field, format!("{path}[{key}]"), names, values);
            }
        }
        Tree::Struct(fields) => {
            for (name, child) in fields {
                if name == "throttle_time_ms"
                    || name.ends_with("error_message")
                    || name == "documentation"
                {
                    continue;
                }
                let path = if path == "answer" {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                walk(child, name, path, names, values);
            }
        }
    }
}

fn put(values: &mut BTreeMap<String, Value>, path: String, text: &str) {
    let value = Value {
        text: text.to_owned(),
        drawn: None,
    };
    insert(values, path, value);
}

/// A topic may stand in a list twice, each time with other partitions: its entries are one. What
/// really stands twice gets a number.
fn insert(values: &mut BTreeMap<String, Value>, path: String, value: Value) {
    let names_its_element = ["].name", "].topic", "].topic_id"];
    let names_its_element = names_its_element.iter().any(|name| path.ends_with(name));
    if names_its_element && values.get(&path) == Some(&value) {
        return;
    }
    let mut free = path.clone();
    let mut count = 1;
    while values.contains_key(&free) {
        count += 1;
        free = format!("{path}#{count}");
    }
    values.insert(free, value);
}

const KEYS: [&str; 14] = [
    "name",
    "topic",
    "group_id",
    "key",
    "resource_name",
    "transactional_id",
    "api_key",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "batch_index",
    "first_offset",
    "base_offset",
];

/// What tells an element from its neighbours.
fn key_of(field: &str, element: &Tree, names: &Names) -> Option<String> {
    // Numbers of partitions are a set.
    if let (Tree::Leaf(number), "partitions") = (element, field) {
        return Some(number.clone());
    }
    for key in KEYS {
        match element.field(key).and_then(Tree::text) {
            None => {}
            Some("") if key == "topic" || key == "name" => {}
            Some(text) => return Some(text.to_owned()),
        }
    }
    // Producers of a partition.
    if element.field("current_txn_start_offset").is_some() {
        let id = element.number("producer_id")?;
        return Some(match names.producers.get(&id) {
            Some(place) => format!("producer {place}"),
            None => id.to_string(),
        });
    }
    if let Some(id) = element.field("topic_id").and_then(Tree::text) {
        return Some(value("topic_id", id, names).text);
    }
    match element
        .field("metadata")
        .or(element.field("member_metadata"))
    {
        // Members are told apart by what they brought.
        Some(Tree::Bytes(bytes)) => {
            let assigned = match element.field("member_assignment") {
                Some(Tree::Bytes(bytes)) => bytes.as_slice(),
                _ => &[],
            };
            let text = String::from_utf8_lossy(bytes);
            Some(format!("{text} {}", String::from_utf8_lossy(assigned)))
        }
        _ => None,
    }
}

fn value(field: &str, text: &str, names: &Names) -> Value {
    let plain = |text: &str| Value {
        text: text.to_owned(),
        drawn: None,
    };
    let drawn = |kind| Value {
        text: text.to_owned(),
        drawn: Some(kind),
    };
    match field {
        "producer_id" if text != "-1" => drawn(Kind::Producer),
        "member_id" | "leader" if !text.is_empty() => drawn(Kind::Member),
        "session_id" if text != "0" => drawn(Kind::Session),
        "cluster_id" => drawn(Kind::Cluster),
        "topic_id" => match text.parse::<Uuid>() {
            Ok(id) if !id.is_nil() => match names.topics.get(&id) {
                Some(name) => plain(&format!("id({name})")),
                None => drawn(Kind::Topic),
            },
            _ => plain(text),
        },
        "port" if text == names.port.to_string() => plain("its own port"),
        _ if field.contains("time") => match text.parse::<i64>() {
            Ok(time) if (time - wall_ms()).abs() < 7_200_000 => plain("now"),
            _ => plain(text),
        },
        _ => plain(text),
    }
}

/// Milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(debug: &str) -> Tree {
        Tree::parse(debug).expect(debug)
    }

    fn fields(comparison: &mut Comparison, a: &str, b: &str) -> Vec<String> {
        let names = Names::default();
        let (a, b) = (tree(a), tree(b));
        comparison
            .compare((&a, &names), (&b, &names))
            .into_iter()
            .map(|d| d.path)
            .collect()
    }

    #[test]
    fn drawn_values_stand_for_each_other_once_bound() {
        let mut comparison = Comparison::default();
        let a = "R { producer_id: ProducerId(1000), error_code: 0 }";
        let b = "R { producer_id: ProducerId(0), error_code: 0 }";
        assert!(fields(&mut comparison, a, b).is_empty());
        assert!(fields(&mut comparison, a, b).is_empty());
        let other = "R { producer_id: ProducerId(1), error_code: 0 }";
        assert_eq!(fields(&mut comparison, a, other), ["producer_id"]);
        let none = "R { producer_id: ProducerId(-1), error_code: 0 }";
        assert_eq!(fields(&mut comparison, a, none), ["producer_id"]);
    }

    #[test]
    fn named_elements_have_no_order_and_may_be_missing() {
        let mut comparison = Comparison::default();
        let a = "R { l: [T { name: \"a\", x: 1 }, T { name: \"b\", x: 2 }] }";
        let b = "R { l: [T { name: \"b\", x: 2 }, T { name: \"a\", x: 3 }] }";
        assert_eq!(fields(&mut comparison, a, b), ["l[a].x"]);
        let short = "R { l: [T { name: \"b\", x: 2 }] }";
        assert_eq!(fields(&mut comparison, a, short), ["l[a].name", "l[a].x"]);
    }

    #[test]
    fn producers_of_a_partition_have_no_order() {
        let mut names = [Names::default(), Names::default()];
        for id in [7, 8] {
            names[0].producer(id);
            names[1].producer(id + 90);
        }
        let list = |ids: [i64; 2]| {
            let one = |id| {
                format!(
                    "P {{ producer_id: {id}, x: {}, current_txn_start_offset: -1 }}",
                    id % 90
                )
            };
            tree(&format!("R {{ l: [{}, {}] }}", one(ids[0]), one(ids[1])))
        };
        let (a, b) = (list([7, 8]), list([98, 97]));
        let mut comparison = Comparison::default();
        let different = comparison.compare((&a, &names[0]), (&b, &names[1]));
        assert!(different.is_empty(), "{different:?}");
    }

    #[test]
    fn numbers_of_partitions_are_a_set() {
        let mut comparison = Comparison::default();
        let a = "R { partitions: [0, 1], others: [0, 1] }";
        let b = "R { partitions: [1, 0], others: [1, 0] }";
        assert_eq!(fields(&mut comparison, a, b), ["others[0]", "others[1]"]);
    }

    #[test]
    fn null_is_not_empty_and_text_is_free() {
        let mut comparison = Comparison::default();
        let paths = fields(
            &mut comparison,
            "R { l: None, error_message: Some(\"one\"), throttle_time_ms: 3 }",
            "R { l: Some([]), error_message: Some(\"two\"), throttle_time_ms: 0 }",
        );
        assert_eq!(paths, ["l"]);
    }
}
