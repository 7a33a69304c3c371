//! Producer windows, open transactions and the last stable offset of a partition
