//! The shape of every request body, as data: one row per field, with the versions that have it.
//!
//! The rows say how long things are and where counts stand, which is all that a bounds check needs;
//! what a field means is the codec's business. The tests hold every row against the codec.

mod acls;
mod admin;
mod data;
mod groups;
mod session;
mod transactions;

use crate::api::{ApiKey, Versions};

/// The fields of a request body or of an array's element, in wire order.
#[derive(Debug)]
pub struct Struct {
    pub fields: &'static [Field],
    /// Tagged fields the codec knows; any other tag is opaque bytes. Flexible versions only.
    pub tagged: &'static [TaggedField],
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Kafka's name, in snake case.
    pub name: &'static str,
    /// The versions whose wire form has the field.
    pub versions: Versions,
    pub kind: Kind,
    /// Whether null is a value.
    pub nullable: bool,
}

/// How a field is written.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// This many bytes: integers, booleans, uuids.
    Fixed(usize),
    /// UTF-8 with a 2-byte length, or a compact one in flexible versions.
    String,
    /// Bytes or records with a 4-byte length, or a compact one in flexible versions.
    Bytes,
    /// A 4-byte count, or a compact one in flexible versions, and the elements.
    Array(Element),
    /// The fields of a struct, in place.
    Struct(&'static Struct),
}

/// What an array holds.
#[derive(Clone, Copy, Debug)]
pub enum Element {
    Fixed(usize),
    String,
    Struct(&'static Struct),
}

/// A tagged field with a known content.
#[derive(Clone, Copy, Debug)]
pub struct TaggedField {
    pub tag: u32,
    pub field: Field,
}

/// The schema of an API's request body, for every version in [`crate::api::Api::decodes`].
pub fn request(key: ApiKey) -> &'static Struct {
    match key {
        ApiKey::Produce => &data::PRODUCE,
        ApiKey::Fetch => &data::FETCH,
        ApiKey::ListOffsets => &data::LIST_OFFSETS,
        ApiKey::Metadata => &session::METADATA,
        ApiKey::OffsetCommit => &groups::OFFSET_COMMIT,
        ApiKey::OffsetFetch => &groups::OFFSET_FETCH,
        ApiKey::FindCoordinator => &session::FIND_COORDINATOR,
        ApiKey::JoinGroup => &groups::JOIN_GROUP,
        ApiKey::Heartbeat => &groups::HEARTBEAT,
        ApiKey::LeaveGroup => &groups::LEAVE_GROUP,
        ApiKey::SyncGroup => &groups::SYNC_GROUP,
        ApiKey::DescribeGroups => &groups::DESCRIBE_GROUPS,
        ApiKey::ListGroups => &groups::LIST_GROUPS,
        ApiKey::SaslHandshake => &session::SASL_HANDSHAKE,
        ApiKey::ApiVersions => &session::API_VERSIONS,
        ApiKey::CreateTopics => &admin::CREATE_TOPICS,
        ApiKey::DeleteTopics => &admin::DELETE_TOPICS,
        ApiKey::DeleteRecords => &data::DELETE_RECORDS,
        ApiKey::InitProducerId => &transactions::INIT_PRODUCER_ID,
        ApiKey::OffsetForLeaderEpoch => &data::OFFSET_FOR_LEADER_EPOCH,
        ApiKey::AddPartitionsToTxn => &transactions::ADD_PARTITIONS_TO_TXN,
        ApiKey::AddOffsetsToTxn => &transactions::ADD_OFFSETS_TO_TXN,
        ApiKey::EndTxn => &transactions::END_TXN,
        ApiKey::WriteTxnMarkers => &transactions::WRITE_TXN_MARKERS,
        ApiKey::TxnOffsetCommit => &transactions::TXN_OFFSET_COMMIT,
        ApiKey::DescribeAcls => &acls::DESCRIBE_ACLS,
        ApiKey::CreateAcls => &acls::CREATE_ACLS,
        ApiKey::DeleteAcls => &acls::DELETE_ACLS,
        ApiKey::DescribeConfigs => &admin::DESCRIBE_CONFIGS,
        ApiKey::AlterConfigs => &admin::ALTER_CONFIGS,
        ApiKey::DescribeLogDirs => &admin::DESCRIBE_LOG_DIRS,
        ApiKey::SaslAuthenticate => &session::SASL_AUTHENTICATE,
        ApiKey::CreatePartitions => &admin::CREATE_PARTITIONS,
        ApiKey::DeleteGroups => &groups::DELETE_GROUPS,
        ApiKey::IncrementalAlterConfigs => &admin::INCREMENTAL_ALTER_CONFIGS,
        ApiKey::OffsetDelete => &groups::OFFSET_DELETE,
        ApiKey::DescribeClientQuotas => &admin::DESCRIBE_CLIENT_QUOTAS,
        ApiKey::AlterClientQuotas => &admin::ALTER_CLIENT_QUOTAS,
        ApiKey::DescribeUserScramCredentials => &admin::DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey::AlterUserScramCredentials => &admin::ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey::DescribeCluster => &admin::DESCRIBE_CLUSTER,
        ApiKey::DescribeProducers => &transactions::DESCRIBE_PRODUCERS,
        ApiKey::DescribeTransactions => &transactions::DESCRIBE_TRANSACTIONS,
        ApiKey::ListTransactions => &transactions::LIST_TRANSACTIONS,
    }
}

impl Struct {
    /// The fields that a version has.
    pub fn fields_of(&self, version: i16) -> impl Iterator<Item = &'static Field> {
        self.fields
            .iter()
            .filter(move |field| field.versions.contains(version))
    }

    /// The fewest bytes the struct can take at a version.
    pub fn min_bytes(&self, version: i16, flexible: bool) -> usize {
        let fields: usize = self
            .fields_of(version)
            .map(|field| field.kind.min_bytes(version, flexible))
            .sum();
        // The count of tagged fields.
        fields + usize::from(flexible)
    }
}

impl Kind {
    /// The fewest bytes a field can take at a version.
    pub fn min_bytes(self, version: i16, flexible: bool) -> usize {
        match (self, flexible) {
            (Kind::Fixed(bytes), _) => bytes,
            (Kind::Struct(fields), _) => fields.min_bytes(version, flexible),
            (Kind::String | Kind::Bytes | Kind::Array(_), true) => 1,
            (Kind::String, false) => 2,
            (Kind::Bytes | Kind::Array(_), false) => 4,
        }
    }
}

impl Element {
    /// The kind of a field with the same content.
    pub fn kind(self) -> Kind {
        match self {
            Element::Fixed(bytes) => Kind::Fixed(bytes),
            Element::String => Kind::String,
            Element::Struct(fields) => Kind::Struct(fields),
        }
    }
}

// The vocabulary of the rows.

const fn row(fields: &'static [Field]) -> Struct {
    Struct {
        fields,
        tagged: &[],
    }
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        versions: Versions {
            min: 0,
            max: i16::MAX,
        },
        kind,
        nullable: false,
    }
}

const fn boolean(name: &'static str) -> Field {
    field(name, Kind::Fixed(1))
}

const fn int8(name: &'static str) -> Field {
    field(name, Kind::Fixed(1))
}

const fn int16(name: &'static str) -> Field {
    field(name, Kind::Fixed(2))
}

const fn int32(name: &'static str) -> Field {
    field(name, Kind::Fixed(4))
}

const fn int64(name: &'static str) -> Field {
    field(name, Kind::Fixed(8))
}

const fn float64(name: &'static str) -> Field {
    field(name, Kind::Fixed(8))
}

const fn uuid(name: &'static str) -> Field {
    field(name, Kind::Fixed(16))
}

const fn string(name: &'static str) -> Field {
    field(name, Kind::String)
}

const fn bytes(name: &'static str) -> Field {
    field(name, Kind::Bytes)
}

const fn array(name: &'static str, element: &'static Struct) -> Field {
    field(name, Kind::Array(Element::Struct(element)))
}

const fn int32s(name: &'static str) -> Field {
    field(name, Kind::Array(Element::Fixed(4)))
}

const fn int64s(name: &'static str) -> Field {
    field(name, Kind::Array(Element::Fixed(8)))
}

const fn strings(name: &'static str) -> Field {
    field(name, Kind::Array(Element::String))
}

impl Field {
    const fn since(mut self, version: i16) -> Field {
        self.versions.min = version;
        self
    }

    const fn until(mut self, version: i16) -> Field {
        self.versions.max = version;
        self
    }

    const fn nullable(mut self) -> Field {
        self.nullable = true;
        self
    }

    const fn tag(self, tag: u32) -> TaggedField {
        TaggedField { tag, field: self }
    }
}
