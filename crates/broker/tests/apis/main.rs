//! APIs end to end: what each version of a request is answered, over a real connection.

mod admin;
mod fetch_sessions;
mod groups;
mod leader_epochs;
mod support;
mod topic_ids;
mod transactions_admin;
mod transactions_v2;
