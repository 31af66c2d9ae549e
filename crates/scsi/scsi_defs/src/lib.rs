//! SCSI wire structures: CDBs, sense data, VPD and mode pages. Pure
