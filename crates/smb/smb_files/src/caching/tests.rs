//! The state machine against what Windows and its test suites say.
