//! All state of one journal: decide and apply
