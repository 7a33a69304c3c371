//! APIs end to end: what each version of a request is answered, over a real connection.

mod support;
mod transactions_v2;
