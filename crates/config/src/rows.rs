//! Every setting of the broker: ONE row each. TOML, server.properties, environment, flags,
//! DescribeConfigs, `config explain` and config/tidemark.toml are all made from these rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use tidemark_metadata::{Check, Kind, SynonymUnit, TOPIC_CONFIGS};

use crate::row::{Row, Section, boolean, int, list, long, string, string_of};
use crate::secret::Secret;
use crate::typed::{
    ExclusiveOperations, FromSetting, JournalSync, TransactionLease, TransactionalIdOwner,
};

/// Kafka's; a start refuses all but the first, with the way to convert.
const STORE_TYPES: &[&str] = &["PEM", "JKS", "PKCS12"];

macro_rules! settings {
    (
        typed { $( $doc:literal $field:ident: $ty:ty = $row:expr; )* }
        untyped { $( $udoc:literal $urow:expr; )* }
        derived { $( $(#[$dattr:meta])* $dfield:ident: $dty:ty; )* }
    ) => {
        /// Settings that have a value of their own, and settings that only make others.
        fn broker_rows() -> Vec<Row> {
            vec![$($urow.doc($udoc),)* $($row.doc($doc),)*]
        }

        /// Everything the broker is told at its start. Sizes are bytes, times milliseconds.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $(#[doc = $doc] pub $field: $ty,)*
            $($(#[$dattr])* pub $dfield: $dty,)*
        }

        /// The typed settings, before what is derived from others is known.
        pub(crate) struct Typed {
            $($field: $ty,)*
        }

        impl Typed {
            /// The error is the name of the first setting whose text is no value of its type.
            pub(crate) fn from_texts<'a>(
                text: impl Fn(&str) -> Option<&'a str>,
            ) -> Result<Typed, &'static str> {
                Ok(Typed {
                    $($field: <$ty>::from_setting(text($row.name)).ok_or($row.name)?,)*
                })
            }

            #[allow(clippy::too_many_arguments)]
            pub(crate) fn into_settings(self, $($dfield: $dty,)*) -> Settings {
                Settings {
                    $($field: self.$field,)*
                    $($dfield,)*
                }
            }
        }
    };
}

settings! {
    typed {
        "This broker's id, unique in its cluster. A data directory keeps the id it was made with."
        node_id: i32 = int("node.id", "0", Check::AtLeast(0)).kafka().aliases(&["broker.id"]);

        "The cluster's id for a new data directory; without it one is drawn. A data directory keeps the id it was made with."
        cluster_id: Option<String> = string("cluster.id", "").without_default();

        "The broker's certificate chain, its own certificate first, and, unless tls.key.location names another file, its private key: one PEM file. Read again when it changes and at SIGHUP; new connections use what it holds then."
        ssl_keystore_location: Option<String> = string("ssl.keystore.location", "").without_default().kafka().at(Section::Tls);

        "A PEM file with the private key alone, without a password."
        tls_key_location: Option<String> = string("tls.key.location", "").without_default().at(Section::Tls);

        "The form of the key and certificate file. Only PEM is read; a start with another one tells how to convert it."
        ssl_keystore_type: String = string_of("ssl.keystore.type", "PEM", Check::OneOf(STORE_TYPES)).kafka().at(Section::Tls);

        "A PEM file with the CAs that sign clients' certificates. Read again when it changes and at SIGHUP."
        ssl_truststore_location: Option<String> = string("ssl.truststore.location", "").without_default().kafka().at(Section::Tls);

        "The form of the file of CAs. Only PEM is read; a start with another one tells how to convert it."
        ssl_truststore_type: String = string_of("ssl.truststore.type", "PEM", Check::OneOf(STORE_TYPES)).kafka().at(Section::Tls);

        "Whether clients show a certificate: none, requested (who shows one must show a good one) or required. With required only holders of a certificate that a CA of ssl.truststore.location signed may connect; each of them may read and write."
        ssl_client_auth: String = string_of("ssl.client.auth", "none", Check::OneOf(&["none", "requested", "required"])).kafka().at(Section::Tls);

        "The versions of TLS that are spoken."
        ssl_enabled_protocols: String = list("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", Check::OneOf(&["TLSv1.2", "TLSv1.3"])).kafka().at(Section::Tls);

        "How a client's principal is made from the name in its certificate (KIP-371): DEFAULT, or RULE:pattern/replacement/ with L or U behind for lower or upper case, separated by commas; the first that fits the whole name decides. It is shown where transactions are explained."
        ssl_principal_mapping_rules: String = string("ssl.principal.mapping.rules", "DEFAULT").kafka().at(Section::Tls);

        "A client that has not finished its TLS handshake after this long is disconnected."
        tls_handshake_timeout_ms: u64 = long("tls.handshake.timeout.ms", "10000", Check::Between(100, 600_000)).at(Section::Tls);

        "How often the files of keys and certificates are looked at for a change."
        tls_reload_interval_ms: u64 = long("tls.reload.interval.ms", "10000", Check::AtLeast(100)).at(Section::Tls);

        "Whether PLAIN is allowed on a listener without TLS, where whoever hears the network hears every password. Without it such a listener does not open."
        auth_plain_without_tls: bool = boolean("auth.plain.without.tls", "false").at(Section::Sasl);

        "Where the public keys of the issuer of tokens are, a JWKS (RFC 7517): an https URL, or a file as file:///PATH. Tokens are JWTs signed with RS, PS or ES with 256, 384 or 512, or EdDSA; each key is for one of these. A file must be good at the start, and is looked at again every tls.reload.interval.ms; one that cannot be used changes nothing. A URL that does not answer at the start is asked again until it does, and until then every token is refused."
        sasl_oauthbearer_jwks_endpoint_url: Option<String> = string("sasl.oauthbearer.jwks.endpoint.url", "").without_default().kafka().at(Section::Sasl);

        "What a token must have in iss, letter for letter."
        sasl_oauthbearer_expected_issuer: Option<String> = string("sasl.oauthbearer.expected.issuer", "").without_default().kafka().at(Section::Sasl);

        "What a token must have in aud: one of these, separated by commas."
        sasl_oauthbearer_expected_audience: String = list("sasl.oauthbearer.expected.audience", "", Check::Any).kafka().at(Section::Sasl);

        "How far the issuer's clock may be from this machine's."
        sasl_oauthbearer_clock_skew_seconds: u64 = int("sasl.oauthbearer.clock.skew.seconds", "30", Check::Between(0, 86_400)).kafka().at(Section::Sasl);

        "The claim of a token that names its owner, who becomes the principal."
        sasl_oauthbearer_sub_claim_name: String = string("sasl.oauthbearer.sub.claim.name", "sub").kafka().at(Section::Sasl);

        "The claim of a token with its scopes. It may be missing, and nothing is made of it."
        sasl_oauthbearer_scope_claim_name: String = string("sasl.oauthbearer.scope.claim.name", "scope").kafka().at(Section::Sasl);

        "How often the keys are read again from a URL. A token with an unknown key has them read at once, but not more often than every ten seconds."
        sasl_oauthbearer_jwks_endpoint_refresh_ms: u64 = long("sasl.oauthbearer.jwks.endpoint.refresh.ms", "3600000", Check::AtLeast(1000)).kafka().at(Section::Sasl);

        "How long to wait before the keys are asked for again after a failure; twice as long after each."
        sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: u64 = long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "100", Check::AtLeast(10)).kafka().at(Section::Sasl);

        "The longest such wait."
        sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: u64 = long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "10000", Check::AtLeast(10)).kafka().at(Section::Sasl);

        "A PEM file with the CAs that sign the certificate of the https URL's host. Without it those that this machine trusts."
        oauth_jwks_truststore_location: Option<String> = string("oauth.jwks.truststore.location", "").without_default().at(Section::Sasl);

        "Whether OAUTHBEARER is allowed on a listener without TLS, where whoever hears the network hears every token. Without it such a listener does not open."
        oauth_tokens_without_tls: bool = boolean("oauth.tokens.without.tls", "false").at(Section::Sasl);

        "Users that the first start makes, for SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN: NAME:PASSWORD, separated by commas. Only what is derived from a password is kept. While there is any user this changes nothing: from then on users are made, changed and taken away with kafka-configs (AlterUserScramCredentials)."
        auth_users: Option<Secret> = string("auth.users", "").without_default().sensitive().at(Section::Sasl);

        "A file with such users, one NAME:PASSWORD a line."
        auth_users_file: Option<String> = string("auth.users.file", "").without_default().at(Section::Sasl);

        "A client that has not authenticated after this long is disconnected."
        auth_timeout_ms: u64 = long("auth.timeout.ms", "10000", Check::Between(100, 600_000)).at(Section::Sasl);

        "The largest request of a client that has not authenticated. Kafka's default is 524288."
        sasl_server_max_receive_size: usize = int("sasl.server.max.receive.size", "65536", Check::Between(1024, 1_048_576)).kafka().at(Section::Sasl);

        "How long a client that failed to authenticate waits for the answer, after which it is disconnected."
        connection_failed_authentication_delay_ms: u64 = int("connection.failed.authentication.delay.ms", "100", Check::Between(0, 60_000)).kafka().at(Section::Sasl);

        "Who asks whether a request is allowed. Empty: nobody, and everyone who connects may do everything. org.apache.kafka.metadata.authorizer.StandardAuthorizer, by Kafka's name: Kafka's ACLs, which kafka-acls.sh manages; then what no ACL allows is not allowed."
        authorizer_class_name: String = string("authorizer.class.name", "").kafka().at(Section::Authorisation);

        "Principals that may do everything, whatever the ACLs say: User:NAME, separated by semicolons. With an authorizer somebody must be named here to make the first ACL."
        super_users: String = string("super.users", "").kafka().at(Section::Authorisation);

        "Whether a resource that no ACL is about is everybody's. Only with an authorizer."
        allow_everyone_if_no_acl_found: bool = boolean("allow.everyone.if.no.acl.found", "false").kafka().at(Section::Authorisation);

        "The most ACLs. Kafka has no limit."
        max_acls: usize = int("max.acls", "10000", Check::Between(1, 1_000_000)).at(Section::Authorisation);

        "Whose a transactional.id is. any: whoever ACLs allow to write it, as in Kafka; a right to a prefix of ids is then enough to fence whoever uses one of them. first: the principal's that opened its first session, until the id is forgotten (transactional.id.expiration.ms); requests of others are answered with TRANSACTIONAL_ID_AUTHORIZATION_FAILED. With and without an authorizer."
        transactional_id_owner: TransactionalIdOwner = Row::new("transactional.id.owner", Kind::String, "any", Check::OneOf(&["any", "first"])).at(Section::Authorisation);

        "Connections at once, over all listeners. One more is closed at once. Kafka has no limit."
        max_connections: usize = int("max.connections", "10000", Check::AtLeast(1)).kafka().at(Section::Limits);

        "Connections at once from one address. Kafka has no limit."
        max_connections_per_ip: usize = int("max.connections.per.ip", "1000", Check::AtLeast(1)).kafka().at(Section::Limits);

        "Connections that may come in a second, over all listeners, after a burst of ten seconds' worth; more wait until it is their turn. Kafka has no limit."
        max_connection_creation_rate: u64 = int("max.connection.creation.rate", "200", Check::AtLeast(1)).kafka().at(Section::Limits);

        "Connections that may come from one address in a second, after a burst of ten seconds' worth. More are closed at once, and take nothing of max.connection.creation.rate. Kafka has a quota for it, connection_creation_rate of an ip, without a default."
        max_connection_creation_rate_per_ip: u64 = int("max.connection.creation.rate.per.ip", "100", Check::AtLeast(1)).at(Section::Limits);

        "Connections at once whose clients have not said who they are: within a TLS handshake, or before SASL is through. One address may have a quarter of them. One more is closed at once. Kafka has no limit."
        max_unauthenticated_connections: usize = int("max.unauthenticated.connections", "1000", Check::AtLeast(1)).at(Section::Limits);

        "A connection on which nothing was asked for this long is closed."
        connections_max_idle_ms: i64 = long("connections.max.idle.ms", "600000", Check::AtLeast(-1)).kafka().at(Section::Limits);

        "The largest request. A larger one closes its connection."
        socket_request_max_bytes: i32 = int("socket.request.max.bytes", "104857600", Check::Between(1024, 2_147_483_647)).kafka().at(Section::Limits);

        "The largest request that is not a Produce: decoded it takes many times its size. A larger one closes its connection."
        control_request_max_bytes: usize = int("control.request.max.bytes", "16777216", Check::AtLeast(1024)).at(Section::Limits);

        "Requests that wait for the owner thread; connections are not read from while the queue is full."
        queued_max_requests: usize = int("queued.max.requests", "500", Check::AtLeast(1)).kafka().at(Section::Limits);

        "Requests of one connection that are read before the first of them is answered."
        max_inflight_requests_per_connection: usize = int("max.inflight.requests.per.connection", "100", Check::Between(1, 100_000)).at(Section::Limits);

        "Bytes of one connection's requests that are not answered. While there are more it is not read from; a single request may be larger."
        max_inflight_bytes_per_connection: usize = int("max.inflight.bytes.per.connection", "16777216", Check::AtLeast(1)).at(Section::Limits);

        "A connection that has begun a request and sends neither the rest of it nor 64 KiB within this long is closed. Where others wait for request.memory.bytes, ten seconds of silence are enough."
        request_read_timeout_ms: u64 = long("request.read.timeout.ms", "60000", Check::Between(100, 3_600_000)).at(Section::Limits);

        "A connection that takes neither the rest of an answer nor 64 KiB of it within this long is closed."
        response_write_timeout_ms: u64 = long("response.write.timeout.ms", "60000", Check::Between(100, 3_600_000)).at(Section::Limits);

        "Memory for requests that are not answered yet, over all connections. While it is used up, connections are not read from."
        request_memory_bytes: u64 = long("request.memory.bytes", "268435456", Check::AtLeast(1_048_576)).at(Section::Limits);

        "How many times its size one compressed batch may become when its records are checked; 16 MiB are always allowed. What becomes more is refused with MESSAGE_TOO_LARGE."
        decompression_max_ratio: usize = int("decompression.max.ratio", "64", Check::AtLeast(1)).at(Section::Limits);

        "The most bytes that one compressed batch may become, whatever its size."
        decompression_max_bytes: u64 = long("decompression.max.bytes", "134217728", Check::AtLeast(1024)).at(Section::Limits);

        "Memory for requests that are not Produce and wait for their turn behind earlier ones of their connections, a Fetch that waits for records first of all. One may take half of what is left; of one above 8 KiB, which counts eight times as it is decoded, the connection is closed otherwise."
        parked_request_memory_bytes: u64 = long("parked.request.memory.bytes", "268435456", Check::AtLeast(1_048_576)).at(Section::Limits);

        "The largest answer to one Fetch, whatever the consumer asks for. A first batch that is larger is sent whole."
        fetch_max_bytes: i32 = int("fetch.max.bytes", "57671680", Check::AtLeast(1024)).kafka().at(Section::Limits);

        "Memory for answers to Fetch that their clients have not taken yet, over all connections. While it is short answers become smaller; one batch is always sent."
        fetch_memory_bytes: u64 = long("fetch.memory.bytes", "268435456", Check::AtLeast(1_048_576)).at(Section::Limits);

        "Fetch sessions (KIP-227) that are kept, over all consumers. One more takes the place of one that is of less use, or is declined, which costs its consumer longer requests and nothing else."
        max_incremental_fetch_session_cache_slots: usize = int("max.incremental.fetch.session.cache.slots", "1000", Check::AtLeast(0)).kafka().at(Section::Limits);

        "Partitions of a topic that is made without a count."
        num_partitions: i32 = int("num.partitions", "1", Check::AtLeast(1)).kafka().at(Section::Topics);

        "Replicas of a topic that is made without a count. One broker can keep one: with more, such a topic is refused, as in Kafka."
        default_replication_factor: i16 = Row::new("default.replication.factor", Kind::Short, "1", Check::AtLeast(1)).kafka().at(Section::Topics);

        "Whether a topic that asks for more replicas than there are brokers gets as many as there are. Without it such a topic is refused with INVALID_REPLICATION_FACTOR, as in Kafka. For applications and test suites that ask for three."
        replication_factor_clamp: bool = boolean("replication.factor.clamp", "false").at(Section::Topics);

        "The least segment.bytes that a topic may be given. Kafka's least is 1048576 since 4.0 and was 14 before; for test suites that are older."
        segment_bytes_min: i32 = int("segment.bytes.min", "1048576", Check::Between(14, 1_048_576)).at(Section::Topics);

        "Whether asking for a topic that does not exist makes it."
        auto_create_topics_enable: bool = boolean("auto.create.topics.enable", "true").kafka().at(Section::Topics);

        "Whether topics may be deleted."
        delete_topic_enable: bool = boolean("delete.topic.enable", "true").kafka().at(Section::Topics);

        "The most partitions of one topic."
        max_partitions_per_topic: i32 = int("max.partitions.per.topic", "10000", Check::Between(1, 1_000_000)).at(Section::Topics);

        "The most partitions of all topics together, the internal ones included."
        max_partitions: i64 = long("max.partitions", "200000", Check::AtLeast(101)).at(Section::Topics);

        "Whether topics with cleanup.policy=compact are compacted."
        log_cleaner_enable: bool = boolean("log.cleaner.enable", "true").kafka().at(Section::Topics);

        "How long compaction waits between two looks for topics that are due, in milliseconds, at least 100."
        log_cleaner_backoff_ms: u64 = long("log.cleaner.backoff.ms", "15000", Check::AtLeast(0)).kafka().at(Section::Topics);

        "Memory for the keys of one run of compaction, in bytes: 128 MiB are 3.6 million keys. What has more new keys takes several runs."
        log_cleaner_dedupe_buffer_size: u64 = long("log.cleaner.dedupe.buffer.size", "134217728", Check::AtLeast(1)).kafka().at(Section::Topics);

        "Bytes that compaction may read and write in a second, together. Kafka has no limit."
        log_cleaner_io_max_bytes_per_second: f64 = Row::new("log.cleaner.io.max.bytes.per.second", Kind::Double, "104857600", Check::Any).kafka().at(Section::Topics);

        "Transactional ids that one principal may have at once; one more is refused with POLICY_VIOLATION. Where clients do not authenticate they are one principal, User:ANONYMOUS. Ids that nobody uses are forgotten after transactional.id.expiration.ms."
        max_transactional_ids_per_principal: usize = int("max.transactional.ids.per.principal", "10000", Check::AtLeast(1)).at(Section::Transactions);

        "Transactions that one principal may have open at once. One more has to wait, with CONCURRENT_TRANSACTIONS, on which clients ask again."
        max_open_transactions_per_principal: usize = int("max.open.transactions.per.principal", "1000", Check::AtLeast(1)).at(Section::Transactions);

        "Partitions that one transaction may write to, groups' offsets included. One more is refused with MESSAGE_TOO_LARGE, on which clients abort."
        max_partitions_per_transaction: usize = int("max.partitions.per.transaction", "10000", Check::AtLeast(1)).at(Section::Transactions);

        "The longest transaction.timeout.ms a producer may ask for."
        transaction_max_timeout_ms: i32 = int("transaction.max.timeout.ms", "900000", Check::AtLeast(1)).kafka().at(Section::Transactions);

        "From when a transaction's timeout counts. kafka: from its first partition. renew: from the last batch that was appended, offset that was committed or partition that was enrolled in it, so that a long transaction lives as long as its producer works; never longer than transaction.max.timeout.ms from its first partition."
        transaction_lease_mode: TransactionLease = Row::new("transaction.lease.mode", Kind::String, "kafka", Check::OneOf(&["kafka", "renew"])).at(Section::Transactions);

        "Operations that abort the open transactions they cut through before they are answered, as the deletion of a topic always does: DeleteRecords (those that have written below the offset in the partition), CreatePartitions and a change of cleanup.policy (those that have enrolled a partition of the topic). In Kafka, and here without this, such transactions go on."
        transaction_exclusive_operations: ExclusiveOperations = list("transaction.exclusive.operations", "", Check::OneOf(ExclusiveOperations::WORDS)).at(Section::Transactions);

        "Whether a classic transactional request (AddPartitionsToTxn, AddOffsetsToTxn, EndTxn below v5, TxnOffsetCommit below v5) that comes on an older connection than the newest one of its session is answered once with COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again. It keeps a request of an earlier transaction that was delayed in the network, and whose client has gone on over another connection, from taking part in a later one, which classic clients cannot be told otherwise; for clients that use one connection at a time, as librdkafka and Java do. Others are put off a few times and then left alone."
        transaction_connection_guard: bool = boolean("transaction.connection.guard", "false").at(Section::Transactions);

        "How long a partition remembers a producer that writes nothing, so that a repeat of its last batches is not written twice. A producer with an open transaction is never forgotten."
        producer_id_expiration_ms: i32 = int("producer.id.expiration.ms", "86400000", Check::AtLeast(1)).kafka().dynamic().at(Section::Transactions);

        "How often it is looked for producers to forget."
        producer_id_expiration_check_interval_ms: u64 = int("producer.id.expiration.check.interval.ms", "600000", Check::AtLeast(1)).kafka().at(Section::Transactions);

        "How long a transactional.id is remembered that no transaction begins or ends under. After it, the id comes back as a new one, with a new producer id."
        transactional_id_expiration_ms: i32 = int("transactional.id.expiration.ms", "604800000", Check::AtLeast(1)).kafka().at(Section::Transactions);

        "How often it is looked for transactional ids to forget."
        transaction_remove_expired_transaction_cleanup_interval_ms: u64 = int("transaction.remove.expired.transaction.cleanup.interval.ms", "3600000", Check::AtLeast(1)).kafka().at(Section::Transactions);

        "How long offsets are kept of a group that has no members, counted from when it lost the last, or of a simple consumer, counted from its commit. Offsets of topics that members read are kept."
        offsets_retention_minutes: i32 = int("offsets.retention.minutes", "10080", Check::AtLeast(1)).kafka().at(Section::Groups);

        "How often it is looked for offsets to drop."
        offsets_retention_check_interval_ms: u64 = long("offsets.retention.check.interval.ms", "600000", Check::AtLeast(1)).kafka().at(Section::Groups);

        "How long the first rebalance of a new group waits for more members."
        group_initial_rebalance_delay_ms: i32 = int("group.initial.rebalance.delay.ms", "3000", Check::AtLeast(0)).kafka().at(Section::Groups);

        "The shortest session.timeout.ms a member may ask for."
        group_min_session_timeout_ms: i32 = int("group.min.session.timeout.ms", "6000", Check::AtLeast(1)).kafka().at(Section::Groups);

        "The longest session.timeout.ms a member may ask for."
        group_max_session_timeout_ms: i32 = int("group.max.session.timeout.ms", "1800000", Check::AtLeast(1)).kafka().at(Section::Groups);

        "The most members of one group; one more is refused with GROUP_MAX_SIZE_REACHED. Kafka has no limit."
        group_max_size: i32 = int("group.max.size", "1000", Check::AtLeast(1)).kafka().at(Section::Groups);

        "The most metadata that may go with one committed offset."
        offset_metadata_max_bytes: i32 = int("offset.metadata.max.bytes", "4096", Check::AtLeast(0)).kafka().at(Section::Groups);

        "The size of one journal file. No record is larger, so it also bounds one request's batches together. Files keep the size they were made with."
        journal_slot_bytes: u64 = long("journal.slot.bytes", "67108864", Check::Between(1_048_576, 1_073_741_824)).at(Section::Journal);

        "The most the journal takes on disk, and the most a start has to replay. With less than eight files' worth the files are smaller."
        journal_budget_bytes: u64 = long("journal.budget.bytes", "1073741824", Check::AtLeast(8_388_608)).at(Section::Journal);

        "When the journal is synced. always: before every acknowledgement; a loss of power loses nothing that was acknowledged. interval:<ms>: that long after a record was acknowledged at the latest; a loss of power may lose records acknowledged in that time, and consumers may have read them. os: when the operating system writes back, or before a checkpoint; a loss of power may lose records acknowledged since. In every mode the end of the process alone loses nothing; and transactions (InitProducerId, their begin, their offsets, their end), committed offsets, groups and topics are synced before they are answered. After an unclean stop with interval or os, open transactions are aborted."
        journal_sync: JournalSync = Row::new("journal.sync", Kind::String, "always", Check::JournalSync).at(Section::Journal);

        "Memory for the newest data of all partitions, which consumers that keep up are served from."
        tail_bytes: u64 = long("tail.bytes", "67108864", Check::AtLeast(1_048_576)).at(Section::Journal);

        "The longest time between two checkpoints while there is something new. The journal's budget may ask for one earlier."
        checkpoint_interval_ms: u64 = long("checkpoint.interval.ms", "60000", Check::AtLeast(100)).at(Section::Journal);

        "How often expired records are looked for (retention.ms, retention.bytes)."
        log_retention_check_interval_ms: u64 = long("log.retention.check.interval.ms", "300000", Check::AtLeast(1)).kafka().at(Section::Journal);

        "Once the log of __cluster_metadata has this many bytes, what it says is written once more and it starts there, if that halves it. Looked at with log.retention.check.interval.ms."
        metadata_log_max_record_bytes_between_snapshots: u64 = long("metadata.log.max.record.bytes.between.snapshots", "20971520", Check::AtLeast(1)).kafka().at(Section::Journal);

        "How long after a start expired records are looked for the first time."
        log_initial_task_delay_ms: u64 = long("log.initial.task.delay.ms", "30000", Check::AtLeast(0)).kafka().at(Section::Journal);

        "The directory of the audit log: lines of JSON, each chained to the one before by its hash, of who did what from where, what was refused and why, whose transactions were ended by whom, what was changed. `tidemark audit verify` checks it. Without it nothing is kept, unless serve --secure has put it into the data directory."
        audit_log_path: Option<String> = string("audit.log.path", "").without_default().at(Section::Audit);

        "A file of the audit log that has grown to this is closed, and another one begun."
        audit_log_max_bytes: u64 = long("audit.log.max.bytes", "33554432", Check::Between(4096, 1_073_741_824)).at(Section::Audit);

        "Files of the audit log that are kept. The oldest is removed when one more begins, and the log says so."
        audit_log_files: usize = int("audit.log.files", "20", Check::AtLeast(2)).at(Section::Audit);

        "What the audit log tells besides refusals, start and stop, which it always tells. sessions: logins that succeed. connections: those refused before anybody logs in, for TLS, limits or broken frames. transactions: those that somebody else than their client ended, and fenced sessions. changes: of topics, records, settings, groups, ACLs and credentials. access: what requests were allowed to read, write and manage, once per principal, operation, resource and audit.log.interval.ms."
        audit_log_events: String = list("audit.log.events", "sessions,connections,transactions,changes,access", Check::OneOf(&["sessions", "connections", "transactions", "changes", "access"])).at(Section::Audit);

        "In the audit log a refusal is a line at once; those that repeat it in this time are one more line with their number. An allowed access is a line once in this time."
        audit_log_interval_ms: u64 = long("audit.log.interval.ms", "60000", Check::AtLeast(1000)).at(Section::Audit);

        "What happens when the audit log cannot be written, or not as fast as it has to be. go-on: events are lost, counted in a metric and, as soon as that can be, in the log itself. stop: the broker ends with exit code 1."
        audit_log_failure: String = string_of("audit.log.failure", "go-on", Check::OneOf(&["go-on", "stop"])).at(Section::Audit);

        "Where the admin endpoint is served: HOST:PORT, or off. It tells who holds which transaction open, aborts one, and has the metrics; whoever reaches it may do so. Without it 127.0.0.1:9644 is tried, and left alone when it is taken."
        admin_listen: Option<String> = string("admin.listen", "").without_default().at(Section::Diagnostics);

        "A file with a token that every request to the admin endpoint has to bring (Authorization: Bearer TOKEN; tidemark txn --token-file). Without it whoever reaches the endpoint may use it."
        admin_token_file: Option<String> = string("admin.token.file", "").without_default().at(Section::Diagnostics);

        "What is logged: a level (error, warn, info, debug, trace), or target=level pairs separated by commas."
        log_filter: String = string("log.filter", "info").aliases(&["log"]).at(Section::Diagnostics);
    }
    untyped {
        "The mechanisms with which clients of listeners with SASL authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. OAUTHBEARER takes tokens as sasl.oauthbearer.* says. PLAIN knows the users of SCRAM, and those that listener.name.NAME.plain.sasl.jaas.config names as user_NAME=\"PASSWORD\" (a server.properties that moves here). listener.name.NAME.sasl.enabled.mechanisms is for one listener, NAME in lower case. Kafka's default is GSSAPI, which is not spoken here."
        list("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512", Check::Any).kafka().at(Section::Sasl);

        "How long a session lasts from its authentication (KIP-368); 0 is without an end. A client must authenticate again before it is over, which those that know how do by themselves; the next request after it closes the connection. listener.name.NAME.connections.max.reauth.ms and listener.name.NAME.MECHANISM.connections.max.reauth.ms are for one listener and one mechanism."
        long("connections.max.reauth.ms", "0", Check::AtLeast(0)).kafka().at(Section::Sasl);

        "The directory for everything that must outlive the broker. One directory: Tidemark does not spread partitions over several."
        list("log.dirs", "./tidemark-data", Check::NotEmpty).kafka().aliases(&["log.dir", "data.dir"]);

        "Kafka's roles of this process. A server.properties of a broker, or of broker and controller in one, is served; one of a controller alone is refused."
        list("process.roles", "", Check::OneOf(&["broker", "controller"])).without_default().kafka();

        "Where clients connect: NAME://HOST:PORT, separated by commas. No host is every address; port 0 is any free one. Names are free, and stand for a protocol in listener.security.protocol.map."
        string("listeners", "PLAINTEXT://127.0.0.1:9092").kafka().at(Section::Listeners);

        "What clients are told to connect to, per listener name, where that is not the address they dialled. Without it every client is told the address it dialled itself."
        string("advertised.listeners", "").without_default().kafka().at(Section::Listeners);

        "The protocol of each listener name, as NAME:PROTOCOL pairs separated by commas. PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
        string("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL").kafka().at(Section::Listeners);

        "Names of listeners that Kafka's controllers use. Tidemark has no controllers, so it does not open these."
        string("controller.listener.names", "").without_default().kafka().at(Section::Listeners);
    }
    derived {
        /// Where clients connect, in the order they were given.
        listeners: Vec<crate::listeners::Listener>;
        /// The directory for everything that must outlive the broker.
        data_dir: std::path::PathBuf;
        /// What decides over requests beside the ACLs; `None` without an authorizer.
        authorizer: Option<tidemark_authorizer::Rules>;
        /// What topics get that set nothing themselves.
        topic_defaults: tidemark_metadata::TopicDefaults;
        /// Every setting's text and where it is from, for DescribeConfigs and `config explain`.
        values: crate::values::Values;
    }
}

/// The broker's defaults of topic configs (`log.*`, `message.max.bytes`): rows made from the topic
/// configs' own.
fn topic_default_rows() -> impl Iterator<Item = Row> {
    TOPIC_CONFIGS.iter().flat_map(|key| {
        let last = key.synonyms.len().saturating_sub(1);
        key.synonyms.iter().enumerate().map(move |(n, synonym)| {
            let (kind, unit, unit_ms) = match synonym.unit {
                SynonymUnit::Same => (key.kind, "", 1),
                SynonymUnit::Minutes => (Kind::Int, " in minutes", 60_000),
                SynonymUnit::Hours => (Kind::Int, " in hours", 3_600_000),
            };
            let default = match (unit_ms, key.default.parse::<i64>()) {
                (1, _) | (_, Err(_)) => Cow::Borrowed(key.default),
                (unit_ms, Ok(ms)) => Cow::Owned((ms / unit_ms).to_string()),
            };
            let weaker = match key.synonyms.get(n + 1) {
                Some(weaker) => format!(" Wins over {}.", weaker.key),
                None => String::new(),
            };
            Row {
                default: (n == last).then_some(default),
                kafka: true,
                dynamic: key.dynamic_synonym() == Some(synonym.key),
                section: Section::TopicDefaults,
                doc: Cow::Owned(format!(
                    "The default of topics' {}{unit}.{weaker} {}",
                    key.name, key.doc
                )),
                ..Row::new(synonym.key, kind, "", key.check)
            }
        })
    })
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut rows = broker_rows();
    rows.extend(topic_default_rows());
    rows.sort_by_key(|row| row.section);
    rows
});

/// Position in `ROWS`, and how strong the name is (0 the strongest).
static BY_NAME: LazyLock<BTreeMap<&'static str, (usize, usize)>> = LazyLock::new(|| {
    let mut by_name = BTreeMap::new();
    for (n, row) in ROWS.iter().enumerate() {
        for (rank, name) in row.names().enumerate() {
            by_name.insert(name, (n, rank));
        }
    }
    by_name
});

/// Every setting, by section.
pub fn rows() -> &'static [Row] {
    &ROWS
}

/// The setting of a name or alias.
pub fn row(name: &str) -> Option<&'static Row> {
    ranked_row(name).map(|(row, _)| row)
}

pub(crate) fn ranked_row(name: &str) -> Option<(&'static Row, usize)> {
    BY_NAME.get(name).map(|(n, rank)| (&ROWS[*n], *rank))
}

/// Every name and alias.
pub(crate) fn all_names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kafka_keys::is_kafka_key;

    #[test]
    fn every_row_is_whole() {
        let mut names = BTreeSet::new();
        let mut variables = BTreeSet::new();
        for row in rows() {
            for name in row.names() {
                assert!(names.insert(name), "{name} twice");
                assert!(variables.insert(Row::env(name)), "{name}'s variable twice");
            }
            assert_eq!(row.kafka, is_kafka_key(row.name), "{}", row.name);
            assert!(row.doc.ends_with('.'), "{}: {}", row.name, row.doc);
            if let Some(default) = &row.default {
                let stored = row.kind.check(row.check, default);
                assert_eq!(stored.as_deref(), Ok(default.as_ref()), "{}", row.name);
            }
        }
        assert!(names.len() > 60);
    }

    #[test]
    fn topic_defaults_have_kafkas_names_and_defaults() {
        let default = |name| row(name).unwrap().default.as_deref();
        assert_eq!(default("log.retention.hours"), Some("168"));
        assert_eq!(default("log.retention.ms"), None);
        assert_eq!(default("log.roll.hours"), Some("168"));
        assert_eq!(default("message.max.bytes"), Some("1048588"));
        assert_eq!(default("log.segment.bytes"), Some("1073741824"));
    }
}
