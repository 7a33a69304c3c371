//! DescribeClientQuotas and AlterClientQuotas: there are no quotas, and none can be set.

use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
};
use tidemark_testkit::requests::text;
use tidemark_types::ErrorCode;

use crate::World;
use crate::support::code;

fn of_user(user: &str, match_type: i8) -> ComponentData {
    ComponentData::default()
        .with_entity_type(text("user"))
        .with_match_type(match_type)
        .with_match((match_type == 0).then(|| text(user)))
}

fn any_user() -> ComponentData {
    of_user("", 2)
}

pub async fn describe(world: &mut World, version: i16) {
    let user = world.name("user");
    let everyone = DescribeClientQuotasRequest::default();
    let filters = [
        vec![],
        vec![of_user(&user, 0)],
        vec![
            of_user("", 1),
            any_user().with_entity_type(text("client-id")),
        ],
        vec![any_user().with_entity_type(text("ip"))],
    ];
    for components in filters {
        for strict in [false, true] {
            let request = everyone.clone().with_strict(strict);
            let request = request.with_components(components.clone());
            let response = world.client.send(version, &request).await;
            assert_eq!(code(response.error_code), ErrorCode::None);
            assert_eq!(response.error_message, None);
            assert_eq!(response.entries, Some(vec![]));
        }
    }
    let twice = everyone.with_components(vec![any_user(), any_user()]);
    let response = world.client.send(version, &twice).await;
    assert_eq!(code(response.error_code), ErrorCode::InvalidRequest);
    let said = response.error_message.expect("it says why");
    assert!(said.contains("user"), "{said:?}");
    assert_eq!(response.entries, None);
}

fn change(kind: &str, name: &str, key: &str, value: Option<f64>) -> EntryData {
    let entity = EntityData::default()
        .with_entity_type(text(kind))
        .with_entity_name(Some(text(name)));
    let op = OpData::default()
        .with_key(text(key))
        .with_value(value.unwrap_or_default())
        .with_remove(value.is_none());
    EntryData::default()
        .with_entity(vec![entity])
        .with_ops(vec![op])
}

/// (whom, error, what is said) of each entry.
fn outcomes(response: &AlterClientQuotasResponse) -> Vec<(String, ErrorCode, String)> {
    let entries = response.entries.iter();
    entries
        .map(|entry| {
            let said = entry.error_message.as_deref().unwrap_or_default();
            let name = entry.entity[0].entity_name.as_deref().unwrap_or_default();
            (name.to_owned(), code(entry.error_code), said.to_owned())
        })
        .collect()
}

pub async fn alter(world: &mut World, version: i16) {
    let user = world.name("user");
    // What is not there can be taken away, as in Kafka.
    let away = change("user", &user, "producer_byte_rate", None);
    let request = AlterClientQuotasRequest::default().with_entries(vec![away]);
    let response = world.client.send(version, &request).await;
    let done = (user.clone(), ErrorCode::None, String::new());
    assert_eq!(outcomes(&response), [done]);

    // What would limit nothing is not taken, and said with what does. Kafka takes it.
    let entries = vec![
        change("user", &user, "consumer_byte_rate", Some(1024.0)),
        change("ip", "127.0.0.9", "connection_creation_rate", Some(5.0)),
        change("user", "other", "no_such_rate", Some(1.0)),
    ];
    let request = AlterClientQuotasRequest::default()
        .with_entries(entries)
        .with_validate_only(true);
    let response = world.client.send(version, &request).await;
    let mut told = outcomes(&response);
    // Kafka's are in no order.
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let codes: Vec<ErrorCode> = told.iter().map(|(_, code, _)| *code).collect();
    let refused = match world.target.is_kafka() {
        true => ErrorCode::None,
        false => ErrorCode::PolicyViolation,
    };
    assert_eq!(codes, [refused, ErrorCode::InvalidRequest, refused]);
    if !world.target.is_kafka() {
        let said = |nth: usize| told[nth].2.as_str();
        assert!(
            said(0).contains("max.connection.creation.rate.per.ip"),
            "{told:?}"
        );
        assert!(
            said(2).contains("max.inflight.bytes.per.connection"),
            "{told:?}"
        );
    }
}
