//! Metadata by name and by id (KIP-516).

use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use tidemark_testkit::TestBroker;
use tidemark_testkit::requests::{error_code, topic_name};
use tidemark_types::ErrorCode;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_found_by_name_or_by_id_each_once() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for name in ["a", "b"] {
        client.create_topic(name, 1).await;
    }
    let a = client.describe_topic("a").await.topic_id;
    let (none, nobody) = (Uuid::nil(), Uuid::from_u128(7));
    const OK: ErrorCode = ErrorCode::None;
    let invalid = ErrorCode::InvalidRequest;
    let unknown_id = ErrorCode::UnknownTopicId;
    let mut ask = async |version: i16, topics: &[(Option<&str>, Uuid)]| {
        let topics = topics.iter().map(|(name, id)| {
            MetadataRequestTopic::default()
                .with_name(name.map(topic_name))
                .with_topic_id(*id)
        });
        let request = MetadataRequest::default().with_topics(Some(topics.collect()));
        let answered = client.send(version, &request).await.topics;
        answered
            .into_iter()
            .map(|t| (t.name.map(|n| n.to_string()), error_code(t.error_code)))
            .collect::<Vec<_>>()
    };
    let name = |name: &str| Some(name.to_owned());
    for version in [12, 13] {
        let names = [(Some("a"), none), (Some("b"), none), (Some("a"), none)];
        assert_eq!(
            ask(version, &names).await,
            [(name("a"), OK), (name("b"), OK)]
        );
        let ids = [(None, a), (None, nobody), (None, a)];
        assert_eq!(
            ask(version, &ids).await,
            [(name("a"), OK), (None, unknown_id)]
        );
        // An id decides, also beside another name; names without one are passed over then.
        let mixed = [(Some("b"), none), (Some("no"), a)];
        assert_eq!(ask(version, &mixed).await, [(name("a"), OK)]);
        let neither = [(None, none), (Some("a"), none)];
        let refused = [(None, invalid), (name("a"), invalid)];
        assert_eq!(ask(version, &neither).await, refused);
    }
    // Below v12 there is nothing to look up by an id.
    for version in [10, 11] {
        assert_eq!(
            ask(version, &[(Some("a"), a)]).await,
            [(name("a"), invalid)]
        );
        assert_eq!(ask(version, &[(Some("a"), none)]).await, [(name("a"), OK)]);
    }
}
