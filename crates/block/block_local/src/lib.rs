//! Files and block devices of this machine as BlockDevices, and their discovery
