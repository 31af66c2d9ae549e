//! A file store on a space: metadata database, extents, clones, crash-safe first writes
