//! Every setting: one row each, read from flags, environment, TOML and server.properties
