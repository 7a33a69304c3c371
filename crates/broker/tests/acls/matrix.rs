//! Every API × with and without a right × what is there and what is not: the table that Apache Kafka gave
//! (`scripts/prove acl-matrix`).

use std::path::Path;

use tidemark_differential::acl_matrix::{Row, SETTINGS, run};
use tidemark_testkit::TestBroker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_api_answers_with_a_right_and_without_it_as_kafka_does() {
    let mut stopped = TestBroker::builder().set("auto.create.topics.enable", true);
    for (name, value) in SETTINGS {
        stopped = stopped.set(name, value);
    }
    let broker = stopped.start().await;
    let address = broker.address();
    let rows = tokio::task::spawn_blocking(move || run(address)).await;
    let rows = rows
        .expect("it does not panic")
        .expect("every row is asked");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/acl-matrix.txt");
    let expected = std::fs::read_to_string(&path).expect("the table is there");
    let answered: Vec<String> = rows.iter().map(Row::line).collect();
    let answered: Vec<&str> = answered.iter().map(String::as_str).collect();
    let expected: Vec<&str> = expected.lines().collect();
    let differ = (answered.iter().zip(&expected)).filter(|(a, e)| a != e);
    let differ: Vec<_> = differ.collect();
    assert!(differ.is_empty(), "answered, expected: {differ:#?}");
    assert_eq!(answered.len(), expected.len(), "rows");
}
