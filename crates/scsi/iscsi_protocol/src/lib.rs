//! iSCSI PDUs, text keys and login negotiation (RFC 7143). Pure
