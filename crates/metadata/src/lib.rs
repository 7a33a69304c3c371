//! Topics, partitions and their configuration: image and records
