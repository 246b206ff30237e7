//! job files
