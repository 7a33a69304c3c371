//! What a start rebuilds: from the journal, from a checkpoint, from both; after a stop and after a
//! power cut at any moment; whatever the wall clock says.

#[path = "../support/member.rs"]
#[allow(dead_code)]
mod member;

mod checkpoint_steps;
mod checkpoints;
mod clocks;
mod commit_steps;
mod expiry;
mod first_start;
mod rebuilt;
mod snapshot;
mod ticks;
