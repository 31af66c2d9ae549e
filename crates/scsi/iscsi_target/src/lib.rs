//! iSCSI portals, sessions and connections on shards
