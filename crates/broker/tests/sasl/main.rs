//! SASL over real connections: who gets in and how, what everybody else is answered, sessions that are
//! renewed, and users that come and go while the broker runs.

mod credentials;
mod first_users;
mod gate;
mod sessions;
mod support;
mod tokens;
