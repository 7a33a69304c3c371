//! In-process broker, raw client, manual clock, fault plans
