//! The codes of all rules: stable names for scripts, and what each means.

/// Makes the enum, the names and their meanings of one table.
macro_rules! codes {
    ($($variant:ident $name:literal $meaning:literal,)*) => {
        /// A rule. Its name never changes, and is never used for another rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl FindingCode {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its stable name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

codes! {
    AddressNotServed "address-not-served" "The service address of a pool cannot be had.",
    CertificateEnds "certificate-ends" "A given certificate of the API ends soon, or has ended.",
    CertificateUnusable "certificate-unusable" "The certificate of the API cannot be used.",
    ChapLoose "chap-loose" "A CHAP user may be any initiator beside others that are bound.",
    ChapNobody "chap-nobody" "Discovery asks for CHAP, and nobody can give it.",
    ChapOff "chap-off" "A target has CHAP users and asks nobody for CHAP.",
    ClockSkew "clock-skew" "The clocks of two nodes differ.",
    DiskCopied "disk-copied" "A disk is a copy of one in use.",
    DiskFailed "disk-failed" "A disk of a pool failed.",
    DiskFull "disk-full" "A disk that is a file has no room on its file system.",
    DiskMissing "disk-missing" "A disk of a pool is missing.",
    DiskPathTaken "disk-path-taken" "Another file was put at the path of a disk in use.",
    DiskRetiring "disk-retiring" "A disk is being emptied, or is retired.",
    DiskSilent "disk-silent" "A disk of a pool does not answer, and what needs it waits.",
    DiskSuspect "disk-suspect" "A disk serves and does not look well: errors, damage, slowness.",
    EtcdDamaged "etcd-damaged" "The database of a member of etcd is not what those of others are.",
    EtcdMemberAway "etcd-member-away" "A member of the cluster's etcd does not answer, or has no leader.",
    EtcdSpace "etcd-space" "The database of a member of etcd is full, or nearly so.",
    GateBroken "gate-broken" "Nobody may write to a disk that is lent to other nodes, as who may cannot be kept.",
    HttpNotServed "http-not-served" "An address of the API cannot be listened at.",
    InitiatorSinglePath "initiator-single-path" "An initiator has one way to a target that offers more.",
    LogOrphaned "log-orphaned" "The log of a volume is here, and the volume is not.",
    LunLostWrites "lun-lost-writes" "Writes that initiators of a LUN had cached may be lost, and not all have been told.",
    LunNotServed "lun-not-served" "A LUN is not served as it should be.",
    LunNumberShared "lun-number-shared" "Several LUNs are mapped to an initiator under one number; it sees one of them.",
    LunOffline "lun-offline" "Somebody has made a LUN offline or read-only.",
    LunReservedAway "lun-reserved-away" "A LUN is reserved by a host that does not see it any more, which keeps others off.",
    LunWriteCache "lun-write-cache" "The write cache of a LUN that gives up what is written is full, or cannot use its overflow file.",
    NodeAway "node-away" "A node of the cluster does not take part, or is not heard of.",
    NodeCutOff "node-cut-off" "The node that says so reaches neither etcd nor any other node.",
    NodeDisksAway "node-disks-away" "Disks of a pool are away with their node.",
    NodeLinkBroken "node-link-broken" "Two nodes that take part do not reach each other.",
    NodePaused "node-paused" "A node takes no pools, or gives them away.",
    NodeRemoved "node-removed" "The cluster has removed the node that says so.",
    NodeSilent "node-silent" "A node does not answer what it was asked.",
    NodeVersion "node-version" "The nodes of the cluster run different releases.",
    NotifyFailed "notify-failed" "A notification cannot be delivered.",
    PoolAwayFromHome "pool-away-from-home" "A pool does not go home by itself, as write caches hold what hosts have written.",
    PoolClosed "pool-closed" "A pool is not open.",
    PoolFillsUp "pool-fills-up" "A pool will be full soon if it goes on growing.",
    PoolOvercommitted "pool-overcommitted" "Thin volumes are promised more than their pool has, and it fills up.",
    PoolReadOnly "pool-read-only" "A pool takes no writes.",
    PoolSpace "pool-space" "A pool is fuller than its limits.",
    PoolUnserved "pool-unserved" "No node of the cluster serves a pool.",
    PortalNotServed "portal-not-served" "An address of iSCSI cannot be listened at.",
    QosMinimumMissed "qos-minimum-missed" "A minimum of storage QoS is asked for and not met.",
    QosOverpromised "qos-overpromised" "More is promised of a volume by storage QoS than it does.",
    QosPolicyMissing "qos-policy-missing" "A policy of storage QoS that something has is not there.",
    QuorumThin "quorum-thin" "One loss more, and the cluster cannot decide who owns what.",
    RecordNotWritten "record-not-written" "The record of changes cannot be written.",
    Redundancy "redundancy" "Data of a volume has fewer copies than promised, or cannot be read.",
    RepairStalled "repair-stalled" "Copies are to be restored, and nothing has been copied for a while.",
    ShareNotContinuous "share-not-continuous" "A share on a pool that moves between nodes is not continuously available.",
    ShareNobody "share-nobody" "Nobody may connect to a share.",
    ShareNotServed "share-not-served" "A share is not served.",
    ShareUnknownName "share-unknown-name" "A share names a user or group that there is not.",
    ShareVolumeDamaged "share-volume-damaged" "A part of what a share serves is not there.",
    SmbNotServed "smb-not-served" "An address of SMB cannot be listened at.",
    SmbOneAttempt "smb1-attempt" "A client has tried to speak SMB 1.",
    SmbUnencrypted "smb-unencrypted" "A client outside of private networks uses a share without encryption.",
    Starting "starting" "Something is not served yet, as the node starts.",
    StoreWentBack "store-went-back" "What the nodes of the cluster share has gone back in time, as a backup of etcd that was restored does.",
    UsersUnreadable "users-unreadable" "The users of shares cannot be read.",
    VolumeClosed "volume-closed" "A volume is not open.",
    VolumeLogBack "volume-log-back" "What is in a write log cannot be brought to the volume's disks.",
    VolumeLogStopped "volume-log-stopped" "A write log has stopped, and its volume takes no writes.",
    VolumeLogThrough "volume-log-through" "Writes of a volume do without its log.",
    VolumeMetadataFull "volume-metadata-full" "There was no space for the metadata of a volume.",
    VolumeNameTwice "volume-name-twice" "Two pools have a volume of the same name.",
    VolumeNoRoom "volume-no-room" "A thin volume finds no room for new data.",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_guide_has_all_of_them() {
        let guide = include_str!("../../../../docs/guide/findings.md");
        for code in FindingCode::ALL {
            let row = format!("| `{}` | {} |", code.name(), code.meaning());
            assert!(guide.contains(&row), "docs/guide/findings.md lacks: {row}");
        }
    }

    #[test]
    fn names_are_unique_and_plain() {
        let names: BTreeSet<&str> = FindingCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), FindingCode::ALL.len());
        for code in FindingCode::ALL {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(code.name().chars().all(plain) && code.meaning().ends_with('.'), "{code:?}");
        }
    }
}
