//! Request and response types of the management API
