//! Histories as text: what is written is read, and what is no history is refused with its line.

use tidemark_histcheck::history::{check, line, read, topics, value_of};

use crate::story::Story;

fn text(story: &Story) -> String {
    let lines: Vec<String> = story.events.iter().map(line).collect();
    lines.join("\n")
}

#[test]
fn what_is_written_is_read() {
    let story = Story::told();
    let events = read(text(&story).as_bytes()).expect("it was just written");
    assert_eq!(events, story.events);
    let names = topics(&[events]);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn a_line_of_a_history_is_plain_json() {
    let written = r#"{"kind":"history","version":1,"seed":7}
{"kind":"send","at":5,"client":"p1","txn":3,"topic":"t","partition":0,"value":12}
{"kind":"sent","at":6,"value":12,"error":"TIMED_OUT"}
{"kind":"poll","from":7,"to":8,"client":"r","read_committed":true,"records":[["t",0,0,12]]}"#;
    let events = read(written.as_bytes()).expect("a history");
    let again: Vec<String> = events.iter().map(line).collect();
    assert_eq!(again.join("\n"), written);
}

#[test]
fn what_is_no_history_is_refused_with_its_line() {
    let cases = [
        ("", "empty"),
        (r#"{"kind":"topic","topic":"t","partitions":1}"#, "line 1"),
        (r#"{"kind":"history","version":9,"seed":7}"#, "version 9"),
        (
            "{\"kind\":\"history\",\"version\":1,\"seed\":7}\n{\"kind\":\"dance\"}",
            "line 2",
        ),
        (
            "{\"kind\":\"history\",\"version\":1,\"seed\":7}\n{\"kind\":\"begin\"",
            "line 2",
        ),
    ];
    for (written, expected) in cases {
        let refused = read(written.as_bytes()).expect_err(written);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_history_without_its_end_is_not_judged() {
    let story = Story::told();
    let refused = check(&[story.events], None).expect_err("it has no final scans");
    assert!(refused.contains("final scan"), "{refused}");
}

#[test]
fn a_value_stands_before_the_first_space() {
    assert_eq!(value_of(b"12 and more"), Some(12));
    assert_eq!(value_of(b"12"), Some(12));
    assert_eq!(value_of(b""), None);
    assert_eq!(value_of(b"-1 x"), None);
}
