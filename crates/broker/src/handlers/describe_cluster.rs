//! DescribeCluster (60), v0-v2: the brokers and the cluster's id (KIP-700).
//!
//! v1 which kind of endpoint is asked about (KIP-919): here are brokers only. v2 fenced brokers
//! (KIP-1073), of which there are none. Nothing is needed for it but to be told the operations.

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};
use tidemark_types::ErrorCode;

use super::authorized_operations::{NOT_ASKED, of_cluster};
use super::{Cx, Pending, text};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) fn handle(cx: Cx, request: DescribeClusterRequest) -> Pending {
    Pending::later(async move {
        let refused = match request.endpoint_type {
            _ if cx.version() == 0 => None,
            BROKERS => None,
            CONTROLLERS => Some((
                ErrorCode::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of \
                 type CONTROLLER"
                    .to_owned(),
            )),
            other => Some((
                ErrorCode::UnsupportedEndpointType,
                format!("Unsupported endpoint type {other}"),
            )),
        };
        cx.answer(&match refused {
            Some((error, message)) => DescribeClusterResponse::default()
                .with_error_code(error.code())
                .with_error_message(Some(text(&message)))
                .with_controller_id(BrokerId(-1))
                .with_cluster_authorized_operations(NOT_ASKED),
            None => describe(&cx, request.include_cluster_authorized_operations),
        })
    })
}

fn describe(cx: &Cx, asks_operations: bool) -> DescribeClusterResponse {
    let node = BrokerId(cx.shared.node_id().0);
    let (host, port) = cx.advertised();
    let image = cx.shared.read().image;
    let cluster_id = image.cluster_id().map_or("", |id| id);
    DescribeClusterResponse::default()
        .with_error_message(None)
        .with_cluster_id(text(cluster_id))
        .with_controller_id(node)
        .with_brokers(vec![
            DescribeClusterBroker::default()
                .with_broker_id(node)
                .with_host(text(&host))
                .with_port(port),
        ])
        .with_cluster_authorized_operations(of_cluster(&cx.rights(), asks_operations))
}
