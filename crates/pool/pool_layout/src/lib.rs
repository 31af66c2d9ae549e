//! Where data goes: columns, copies, slabs, fault domains. Pure
