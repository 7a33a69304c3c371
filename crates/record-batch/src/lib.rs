//! Kafka v2 record batches: view, validation, records, control batches
