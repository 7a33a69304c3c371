//! The API table: which keys and versions exist, which are served, which are advertised.
//!
//! One row per API. Versions are advertised only when a client has driven them end to end, so the
//! `serves` column is narrower than what the codec could decode, and never taken from the codec.

use std::fmt;
use std::ops::RangeInclusive;

/// One API: a row of [`ApiTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Api {
    pub key: ApiKey,
    /// Kafka's name.
    pub name: &'static str,
    /// Versions whose requests can be walked and decoded; `serves` is within it.
    pub decodes: Versions,
    /// First version with compact lengths and tagged fields (KIP-482): request header v2, response
    /// header v1. `i16::MAX` where there is none.
    pub flexible_from: i16,
    /// True for the three APIs a client may call before it has authenticated.
    pub allowed_before_auth: bool,
    /// What is served, `None` for an API that is only known.
    pub serves: Option<Served>,
}

/// What is served of an API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The smallest version that ApiVersions tells. It is below `versions.min` for Produce only.
    pub min_advertised: i16,
    /// The versions that are answered.
    pub versions: Versions,
}

/// A range of versions, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    pub const fn iter(self) -> RangeInclusive<i16> {
        self.min..=self.max
    }
}

macro_rules! api_table {
    ($(
        $name:ident = $key:literal, decodes $dmin:literal..=$dmax:literal, flexible $flexible:expr
        $(, before_auth $before_auth:literal)?
        $(, serves $smin:literal..=$smax:literal, advertised from $amin:literal)?;
    )*) => {
        /// The key of a known API, by Kafka's name.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $($name = $key,)*
        }

        impl ApiKey {
            /// The API of a key on the wire, if it is one that the table knows.
            pub const fn from_code(code: i16) -> Option<ApiKey> {
                match code {
                    $($key => Some(ApiKey::$name),)*
                    _ => None,
                }
            }

            /// Its row.
            pub const fn api(self) -> &'static Api {
                match self {
                    $(ApiKey::$name => const {
                        &Api {
                            key: ApiKey::$name,
                            name: stringify!($name),
                            decodes: Versions { min: $dmin, max: $dmax },
                            flexible_from: $flexible,
                            allowed_before_auth: false $(|| $before_auth)?,
                            serves: ApiTable::served(&[
                                $(($amin, $smin, $smax))?
                            ]),
                        }
                    },)*
                }
            }
        }

        impl ApiTable {
            /// Every known API, in the order of the keys.
            pub const KEYS: &'static [ApiKey] = &[$(ApiKey::$name,)*];
        }
    };
}

/// No version is flexible.
const NEVER: i16 = i16::MAX;

// To serve one more API or version: widen `serves` here, add the handler and a client test.
// `decodes` is what the walker's schema and the codec agree on; the tests compare both.
api_table! {
    // Advertised from 0, though versions below 3 are refused: librdkafka decides from the smallest
    // Produce version whether it may compress (KAFKA-18659).
    Produce = 0, decodes 3..=13, flexible 9, serves 3..=13, advertised from 0;
    Fetch = 1, decodes 4..=18, flexible 12, serves 4..=18, advertised from 4;
    ListOffsets = 2, decodes 1..=10, flexible 6, serves 1..=10, advertised from 1;
    Metadata = 3, decodes 0..=13, flexible 9, serves 0..=13, advertised from 0;
    OffsetCommit = 8, decodes 2..=9, flexible 8, serves 2..=9, advertised from 2;
    OffsetFetch = 9, decodes 1..=9, flexible 6, serves 1..=9, advertised from 1;
    FindCoordinator = 10, decodes 0..=6, flexible 3, serves 0..=6, advertised from 0;
    JoinGroup = 11, decodes 0..=9, flexible 6, serves 0..=9, advertised from 0;
    Heartbeat = 12, decodes 0..=4, flexible 4, serves 0..=4, advertised from 0;
    LeaveGroup = 13, decodes 0..=5, flexible 4, serves 0..=5, advertised from 0;
    SyncGroup = 14, decodes 0..=5, flexible 4, serves 0..=5, advertised from 0;
    DescribeGroups = 15, decodes 0..=6, flexible 5, serves 0..=6, advertised from 0;
    ListGroups = 16, decodes 0..=5, flexible 3, serves 0..=5, advertised from 0;
    SaslHandshake = 17, decodes 0..=1, flexible NEVER, before_auth true, serves 0..=1, advertised from 0;
    ApiVersions = 18, decodes 0..=4, flexible 3, before_auth true, serves 0..=4, advertised from 0;
    CreateTopics = 19, decodes 2..=7, flexible 5, serves 2..=7, advertised from 2;
    DeleteTopics = 20, decodes 1..=6, flexible 4, serves 1..=6, advertised from 1;
    DeleteRecords = 21, decodes 0..=2, flexible 2, serves 0..=2, advertised from 0;
    InitProducerId = 22, decodes 0..=5, flexible 2, serves 0..=5, advertised from 0;
    OffsetForLeaderEpoch = 23, decodes 2..=4, flexible 4, serves 2..=4, advertised from 2;
    AddPartitionsToTxn = 24, decodes 0..=5, flexible 3, serves 0..=3, advertised from 0;
    AddOffsetsToTxn = 25, decodes 0..=4, flexible 3, serves 0..=4, advertised from 0;
    EndTxn = 26, decodes 0..=5, flexible 3, serves 0..=5, advertised from 0;
    WriteTxnMarkers = 27, decodes 1..=1, flexible 1, serves 1..=1, advertised from 1;
    TxnOffsetCommit = 28, decodes 0..=5, flexible 3, serves 0..=5, advertised from 0;
    DescribeAcls = 29, decodes 1..=3, flexible 2, serves 1..=3, advertised from 1;
    CreateAcls = 30, decodes 1..=3, flexible 2, serves 1..=3, advertised from 1;
    DeleteAcls = 31, decodes 1..=3, flexible 2, serves 1..=3, advertised from 1;
    DescribeConfigs = 32, decodes 1..=4, flexible 4, serves 1..=4, advertised from 1;
    AlterConfigs = 33, decodes 0..=2, flexible 2, serves 0..=2, advertised from 0;
    DescribeLogDirs = 35, decodes 1..=4, flexible 2, serves 1..=4, advertised from 1;
    SaslAuthenticate = 36, decodes 0..=2, flexible 2, before_auth true, serves 0..=2, advertised from 0;
    CreatePartitions = 37, decodes 0..=3, flexible 2, serves 0..=3, advertised from 0;
    DeleteGroups = 42, decodes 0..=2, flexible 2, serves 0..=2, advertised from 0;
    IncrementalAlterConfigs = 44, decodes 0..=1, flexible 1, serves 0..=1, advertised from 0;
    OffsetDelete = 47, decodes 0..=0, flexible NEVER, serves 0..=0, advertised from 0;
    DescribeClientQuotas = 48, decodes 0..=1, flexible 1, serves 0..=1, advertised from 0;
    AlterClientQuotas = 49, decodes 0..=1, flexible 1, serves 0..=1, advertised from 0;
    DescribeUserScramCredentials = 50, decodes 0..=0, flexible 0, serves 0..=0, advertised from 0;
    AlterUserScramCredentials = 51, decodes 0..=0, flexible 0, serves 0..=0, advertised from 0;
    DescribeCluster = 60, decodes 0..=2, flexible 0, serves 0..=2, advertised from 0;
    DescribeProducers = 61, decodes 0..=0, flexible 0, serves 0..=0, advertised from 0;
    DescribeTransactions = 65, decodes 0..=0, flexible 0, serves 0..=0, advertised from 0;
    ListTransactions = 66, decodes 0..=2, flexible 0, serves 0..=2, advertised from 0;
}

/// The whole table.
pub struct ApiTable;

impl ApiTable {
    /// Every known API, in the order of the keys.
    pub fn all() -> impl Iterator<Item = &'static Api> {
        Self::KEYS.iter().map(|key| key.api())
    }

    /// The APIs that are served, in the order of the keys: the rows of an ApiVersions response.
    pub fn served_apis() -> impl Iterator<Item = (&'static Api, Served)> {
        Self::all().filter_map(|api| api.serves.map(|served| (api, served)))
    }

    const fn served(column: &[(i16, i16, i16)]) -> Option<Served> {
        match column {
            [(min_advertised, min, max)] => Some(Served {
                min_advertised: *min_advertised,
                versions: Versions {
                    min: *min,
                    max: *max,
                },
            }),
            _ => None,
        }
    }
}

impl ApiKey {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Kafka's name.
    pub const fn name(self) -> &'static str {
        self.api().name
    }

    /// True if requests of this version are answered.
    pub const fn is_served(self, version: i16) -> bool {
        match self.api().serves {
            Some(served) => served.versions.contains(version),
            None => false,
        }
    }

    /// True if an ApiVersions response tells of this version.
    pub const fn is_advertised(self, version: i16) -> bool {
        match self.api().serves {
            Some(served) => served.min_advertised <= version && version <= served.versions.max,
            None => false,
        }
    }

    /// True from the version with compact lengths and tagged fields on (KIP-482).
    pub const fn is_flexible(self, version: i16) -> bool {
        version >= self.api().flexible_from
    }

    /// The version of the header before a request: 1, or 2 with tagged fields.
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the header before a response: 0, or 1 with tagged fields. ApiVersions stays
    /// at 0, so that a client can read an answer to a version the broker does not know (KIP-511).
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            ApiKey::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.code())
    }
}
