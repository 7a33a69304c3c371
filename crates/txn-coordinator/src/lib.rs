//! The transaction coordinator's rules as pure functions
