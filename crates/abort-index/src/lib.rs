//! Aborted transactions of a partition, found by offset range
