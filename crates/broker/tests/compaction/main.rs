//! Compacted topics, from the client's side: what is left of them says what they said.

mod cuts;
mod reader;
mod shortened;
mod stories;
