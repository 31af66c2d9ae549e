//! Pools of disks and the spaces in them: metadata quorum, mirrors, dirty regions, repair
