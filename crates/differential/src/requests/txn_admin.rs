//! What operators ask of transactions (KIP-664).

use anyhow::{Result, ensure};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest, ProducerId,
    WriteTxnMarkersRequest,
};

use super::{Body, by, encode, places, text, topic_name, transactional_id};
use crate::env::Env;
use crate::script::Line;

/// `describe-txns ID ...`
pub fn describe_transactions(line: &Line, version: i16) -> Result<Body> {
    let ids = line.words.iter().map(|id| transactional_id(id)).collect();
    let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
    encode(version, &request)
}

/// `list-txns [state=Ongoing,Empty] [producers=p,q] [longer=ms] [pattern=]`
pub fn list_transactions(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let list = |name| {
        let names = line.get(name).unwrap_or("").split(',');
        names.filter(|name| !name.is_empty())
    };
    let producers = list("producers").map(|name| Ok(ProducerId(env.producer(name)?.0)));
    let mut request = ListTransactionsRequest::default()
        .with_state_filters(list("state").map(text).collect())
        .with_producer_id_filters(producers.collect::<Result<_>>()?);
    if version >= 1 {
        request = request.with_duration_filter(line.number("longer", -1)?);
    }
    if version >= 2 {
        request = request.with_transactional_id_pattern(line.get("pattern").map(text));
    }
    encode(version, &request)
}

/// `describe-producers t/0 ...`
pub fn describe_producers(line: &Line, version: i16) -> Result<Body> {
    let topics = places(line)?.into_iter().map(|(topic, places)| {
        TopicRequest::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(places.iter().map(|place| place.partition).collect())
    });
    let request = DescribeProducersRequest::default().with_topics(topics.collect());
    encode(version, &request)
}

/// `write-markers by= t/0 ... [result=commit|abort] [coord=epoch]`: an abort unless it says otherwise.
pub fn write_markers(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let (id, epoch) = by(line, env)?;
    let result = line.get("result").unwrap_or("abort");
    ensure!(
        matches!(result, "commit" | "abort"),
        "result={result}: commit or abort"
    );
    let topics = places(line)?.into_iter().map(|(topic, places)| {
        WritableTxnMarkerTopic::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(places.iter().map(|place| place.partition).collect())
    });
    let marker = WritableTxnMarker::default()
        .with_producer_id(id)
        .with_producer_epoch(epoch)
        .with_transaction_result(result == "commit")
        .with_coordinator_epoch(line.number("coord", 0)?)
        .with_topics(topics.collect());
    encode(
        version,
        &WriteTxnMarkersRequest::default().with_markers(vec![marker]),
    )
}
