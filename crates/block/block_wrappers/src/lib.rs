//! Decorators of a BlockDevice: fault injection, statistics
