//! Quotas of users (MS-FSCC 2.4.41, MS-SMB2 2.2.37.1).

use crate::fscc::entries::{EntryWriter, entries};
use crate::security::Sid;
use crate::time::FileTime;
use crate::wire::{DecodeError, Reader, Reserved, Wire};

/// A user's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The user.
    pub sid: Sid,
    /// When it last changed.
    pub change_time: FileTime,
    /// Bytes in use.
    pub used: u64,
    /// Bytes at which a warning is due.
    pub threshold: u64,
    /// Bytes allowed; u64::MAX for no limit.
    pub limit: u64,
}

/// A list of quotas in `out`, of at most `limit` bytes.
pub fn quota_writer(out: &mut Vec<u8>, limit: usize) -> EntryWriter<'_> {
    EntryWriter::new(out, limit, 8)
}

/// Appends a quota; says whether it fitted.
pub fn push_quota(list: &mut EntryWriter<'_>, quota: &Quota) -> bool {
    list.push(|out| {
        (quota.sid.encoded_len() as u32).put(out);
        quota.change_time.put(out);
        quota.used.put(out);
        quota.threshold.put(out);
        quota.limit.put(out);
        quota.sid.put(out);
    })
}

/// The quotas in FileQuotaInformation.
pub fn quotas(bytes: &[u8]) -> impl Iterator<Item = Result<Quota, DecodeError>> {
    entries(bytes).map(|entry| {
        let mut r = Reader::new(entry?);
        r.u32()?;
        let sid_len = r.u32()? as usize;
        let change_time = FileTime(r.u64()?);
        let (used, threshold, limit) = (r.u64()?, r.u64()?, r.u64()?);
        let sid = Sid::decode(r.raw(sid_len)?)?;
        Ok(Quota { sid, change_time, used, threshold, limit })
    })
}

/// SMB2_QUERY_QUOTA_INFO: whose quotas are wanted (MS-SMB2 2.2.37.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryQuota {
    /// One entry only.
    pub single: bool,
    /// The listing starts from the beginning.
    pub restart: bool,
    /// The users whose entries are wanted; empty for all.
    pub users: Vec<Sid>,
}

impl QueryQuota {
    /// Decodes it from the input of QUERY_INFO.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(input: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let (single, restart) = (bool::take(&mut r)?, bool::take(&mut r)?);
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let list_len = r.u32()? as usize;
        let (start_len, start_at) = (r.u32()? as usize, r.u32()? as usize);
        let buffer = r.raw(r.remaining())?;
        let mut users = Vec::new();
        if list_len > 0 {
            // Entries of FILE_GET_QUOTA_INFORMATION: offset of the next, length, SID.
            for entry in entries(buffer.get(..list_len).ok_or(DecodeError::Truncated)?) {
                let mut r = Reader::new(entry?);
                r.u32()?;
                let len = r.u32()? as usize;
                users.push(Sid::decode(r.raw(len)?)?);
            }
        } else if start_len > 0 {
            users.push(Sid::decode(crate::wire::part(buffer, start_at, start_len, 0, "start SID")?)?);
        }
        Ok(Self { single, restart, users })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_there_and_back() {
        let sid: Sid = "S-1-5-21-1-2-3-1001".parse().unwrap();
        let quota = Quota { sid, change_time: FileTime(1), used: 2, threshold: 3, limit: u64::MAX };
        let mut out = Vec::new();
        let mut list = quota_writer(&mut out, 200);
        assert!(push_quota(&mut list, &quota) && push_quota(&mut list, &quota));
        assert_eq!(quotas(&out).map(Result::unwrap).collect::<Vec<_>>(), [quota; 2]);
        for cut in 1..out.len() {
            assert!(quotas(&out[..cut]).any(|quota| quota.is_err()));
        }
    }

    #[test]
    fn whose_quotas() {
        let sid: Sid = "S-1-5-18".parse().unwrap();
        let mut list = vec![1, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0];
        sid.put(&mut list);
        let query = QueryQuota::decode(&list).unwrap();
        assert_eq!((query.single, query.users), (true, vec![sid]));
        assert!(QueryQuota::decode(&list[..list.len() - 1]).is_err());
        assert_eq!(QueryQuota::decode(&[0; 16]).unwrap().users, []);
    }
}
