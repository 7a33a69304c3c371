//! What the fuzz targets drive. The same functions run on the stable compiler in `crates/wire`'s
//! `tests/hostile.rs`, which includes the module by its path.
//!
//! Run a target with `cargo +nightly fuzz run frame` from the root of the repository.

pub mod drive;
