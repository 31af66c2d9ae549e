//! A SCSI disk over a file or block device: commands, unit attentions, persistent reservations
