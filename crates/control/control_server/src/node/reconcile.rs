//! What is served is made equal to the configuration, as far as volumes are there.

use std::collections::BTreeMap;

use super::Node;
use crate::backend::{OpenVolume, ServedLun};

impl Node {
    /// Makes what iSCSI and SMB serve equal to the configuration. When it ends, neither holds anything of a volume that
    /// is not open.
    pub(super) async fn reconcile(&self) {
        self.complete_ties();
        let mut config = self.config.get();
        self.apply_caches(&config);
        let mut luns = Vec::new();
        for lun in &config.luns {
            if let Ok(volume) = self.volume_of(lun) {
                luns.push(ServedLun { name: lun.name.clone(), volume });
            }
        }
        let mut undecided: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for share in config.shares.iter().filter(|share| share.volume_guid.is_none()) {
            if self.refuse_stranger(share).is_err() {
                undecided.entry(share.volume.clone()).or_default().push(share.name.clone());
            }
        }
        let volumes: Vec<OpenVolume> = {
            let volumes = self.volumes.lock();
            let open = volumes.iter().filter_map(|(name, slot)| Some((name.clone(), slot.handle.clone()?)));
            let undecided = |name: &String| undecided.get(name).cloned().unwrap_or_default();
            open.map(|(name, volume)| OpenVolume { undecided: undecided(&name), name, volume }).collect()
        };
        let name = self.name();
        let mut trouble: BTreeMap<String, String> = BTreeMap::new();
        match self.backends.iscsi.apply(&config, luns).await {
            Ok(found) => trouble.extend(found),
            Err(problem) => drop(trouble.insert("iSCSI".into(), problem.detail)),
        }
        trouble.extend(self.strangers(&config.luns));
        // SMB finds volumes by their names.
        let strangers = self.strangers(&config.shares);
        config.shares.retain(|share| self.refuse_stranger(share).is_ok());
        match self.backends.smb.apply(&config, &name, volumes).await {
            Ok(found) => trouble.extend(found),
            Err(problem) => drop(trouble.insert("SMB".into(), problem.detail)),
        }
        trouble.extend(strangers);
        trouble.extend(self.serve_network());
        let mut before = self.unserved.lock();
        for (subject, why) in &trouble {
            if before.get(subject) != Some(why) {
                tracing::error!(subject, why, "not served");
            }
        }
        *before = trouble;
    }
}
