//! The targets.

mod disk;
mod records;
mod security;
mod settings;
mod state;
mod wire;

/// One thing to fuzz.
pub struct Target {
    pub name: &'static str,
    /// What of the product reads the bytes.
    pub what: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// What the fuzzer begins with: small, and made by our own encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:literal $what:literal $run:expr, $seeds:expr;)*) => {
        pub const TARGETS: &[Target] = &[$(Target {
            name: $name,
            what: $what,
            run: $run,
            seeds: $seeds,
        },)*];
    };
}

targets! {
    "frame" "a connection: frames, headers, bodies, batches" wire::frames, wire::frame_seeds;
    "api" "the body of any API at any version" wire::api, wire::api_seeds;
    "batch" "the records of a Produce request, as they are" wire::batch, wire::batch_seeds;
    "records" "a batch with its CRC: validation, records, rewriting, both readers" wire::sealed_batch, wire::batch_seeds;
    "gzip" "a batch's records as gzip" wire::gzip, wire::gzip_seeds;
    "snappy" "a batch's records as snappy, in both framings" wire::snappy, wire::snappy_seeds;
    "lz4" "a batch's records as LZ4" wire::lz4, wire::lz4_seeds;
    "zstd" "a batch's records as Zstandard" wire::zstd, wire::zstd_seeds;
    "properties" "a server.properties" settings::properties, settings::properties_seeds;
    "toml" "a tidemark.toml" settings::toml, settings::toml_seeds;
    "acls" "ACLs, and what a filter means by them; super.users" security::acls, security::acls_seeds;
    "sasl-plain" "a client's PLAIN message" security::plain, security::plain_seeds;
    "sasl-scram" "a client's two SCRAM messages" security::scram, security::scram_seeds;
    "oauth-message" "a client's OAUTHBEARER message" security::oauth_message, security::oauth_message_seeds;
    "jwt" "a bearer token" security::jwt, security::jwt_seeds;
    "jwt-claims" "a bearer token that is signed" security::jwt_claims, security::jwt_claims_seeds;
    "jwks" "an issuer's keys" security::jwks, security::jwks_seeds;
    "journal-slot" "a file of the journal, by both readers" disk::slot, disk::slot_seeds;
    "journal-record" "a record's payload, and its replay" state::record, state::record_seeds;
    "checkpoint" "a checkpoint file, by both readers, and its blocks" disk::checkpoint, disk::checkpoint_seeds;
    "block" "a partition's state in a checkpoint" state::block, state::block_seeds;
    "manifest" "a checkpoint's word on segments" disk::manifest, disk::manifest_seeds;
    "segment" "a segment and its tick index, by both readers" disk::segment, disk::segment_seeds;
    "tick-index" "headers and entries of a tick index" disk::tick_index, disk::tick_index_seeds;
    "abort-index" "aborted transactions of a partition" records::aborted, records::aborted_seeds;
    "producers" "the producers of a partition" records::producers, records::producers_seeds;
    "metadata" "records of __cluster_metadata, by both readers" records::metadata, records::metadata_seeds;
    "transactions" "records of __transaction_state, by both readers" records::transactions, records::transactions_seeds;
    "groups" "records of __consumer_offsets, by both readers" records::groups, records::groups_seeds;
    "data-dir" "one file of a data directory, by the independent reader" disk::data_dir, disk::data_dir_seeds;
    "audit-log" "a file of the audit log: its check, and a start on it" disk::audit_log, disk::audit_log_seeds;
    "history" "a recorded history and its verdict" records::history, records::history_seeds;
    "owner" "producers, consumers, groups, operators, time and starts, against a model" state::moves, state::moves_seeds;
}

pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
