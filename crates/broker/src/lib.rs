//! The broker: connections, handlers, owner thread, publication
