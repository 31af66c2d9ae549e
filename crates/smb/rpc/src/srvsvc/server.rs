//! The server itself (MS-SRVS 3.1.4.17, 3.1.4.19, 3.1.4.21, 3.1.4.24).

use smb_protocol::FileTime;

use super::enumeration::{Entry, Extent, Wanted, answer, size_of};
use crate::error::{Fault, Win32};
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
use crate::server_info;

/// SV_TYPE_WORKSTATION, SERVER, NT, SERVER_NT (MS-SRVS 2.2.2.7).
const SERVER_TYPE: u32 = 0x1 | 0x2 | 0x1000 | 0x8000;

/// NetrServerGetInfo.
pub(super) fn get_info(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    server_info::answer(call, r, |server, level, out| {
        if level > 100 {
            out.u32(server.version.0);
            out.u32(server.version.1);
            out.u32(SERVER_TYPE);
            out.wide(&server.comment);
        }
        if level == 102 {
            // No limit of users; never disconnected for being idle; visible; announced every four minutes, in theory.
            out.u32(u32::MAX);
            out.u32(u32::MAX);
            out.u32(0);
            out.u32(240);
            out.u32(0);
            // No licences; users' folders, as Windows has them.
            out.u32(0);
            out.wide("c:\\");
        }
    })
}

/// NetrServerDiskEnum: the drive that paths of shares are shown on.
pub(super) fn disk_enum(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    const DRIVE: &str = "C:";
    let level = r.u32()?;
    let asked = r.u32()?;
    if r.pointer()? && (r.varying(1)? != 0 || asked != 0) {
        // The container of a request is empty.
        return Err(Fault::BAD_STUB_DATA);
    }
    let extent = Extent::take(r)?;
    let result = match level {
        0 if call.is_plain_user() => Win32::ACCESS_DENIED,
        0 => Win32::SUCCESS,
        _ => Win32::INVALID_LEVEL,
    };
    let count = u32::from(result == Win32::SUCCESS);
    let mut out = NdrOut::new();
    out.u32(count);
    out.pointer(count > 0);
    if count > 0 {
        // An array of arrays: each is varying, as a string of at most three characters.
        for number in [1, 0, 1, 0, 3] {
            out.u32(number);
        }
        DRIVE.encode_utf16().chain([0]).for_each(|unit| out.u16(unit));
    }
    out.u32(count);
    out.pointer(extent.is_resumed());
    if extent.is_resumed() {
        out.u32(0);
    }
    out.win32(result);
    Ok(out)
}

struct Transport {
    clients: u32,
    network_address: String,
}

impl Entry for Transport {
    fn put(&self, _: u32, out: &mut NdrOut) {
        const ADDRESS: &[u8] = b"000000000000";
        out.u32(self.clients);
        out.wide("\\Device\\NetbiosSmb");
        out.bytes(Some(ADDRESS));
        out.count(ADDRESS.len());
        out.wide(&self.network_address);
    }

    fn size(&self, _: u32) -> usize {
        size_of(&[&self.network_address]) + 64
    }
}

/// NetrServerTransportEnum: there is one, which is TCP.
pub(super) fn transport_enum(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    let wanted = Wanted::take(r, &[0, 1, 2, 3])?;
    let extent = Extent::take(r)?;
    let found = if call.is_plain_user() {
        Err(Win32::ACCESS_DENIED)
    } else if wanted.level() != 0 {
        Err(Win32::INVALID_LEVEL)
    } else {
        let clients = u32::try_from(call.view.sessions().len()).unwrap_or(u32::MAX);
        Ok(vec![Transport { clients, network_address: "000000000000".to_owned() }])
    };
    Ok(answer(wanted, extent, found))
}

/// NetrRemoteTOD: what time it is. The server keeps UTC, so its distance from it is none.
pub(super) fn remote_tod(call: &Call<'_>) -> NdrOut {
    let up_seconds = call.view.server().up_seconds;
    let time = Civil::of(call.view.now());
    let mut out = NdrOut::new();
    out.pointer(true);
    let low = |value: u64| u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
    out.u32(low(time.unix_seconds));
    out.u32(low(up_seconds.wrapping_mul(1000)));
    for part in [time.hour, time.minute, time.second, time.hundredth] {
        out.u32(part);
    }
    out.u32(0);
    // The resolution of the clock, in ten-thousandths of a second.
    out.u32(310);
    for part in [time.day, time.month, time.year, time.weekday] {
        out.u32(part);
    }
    out.win32(Win32::SUCCESS);
    out
}

/// A time as people write it.
struct Civil {
    unix_seconds: u64,
    hundredth: u32,
    second: u32,
    minute: u32,
    hour: u32,
    day: u32,
    month: u32,
    year: u32,
    weekday: u32,
}

impl Civil {
    fn of(time: FileTime) -> Self {
        let nanos = time.to_unix_nanos().max(0) as u64;
        let unix_seconds = nanos / 1_000_000_000;
        let (days, in_day) = (unix_seconds / 86_400, unix_seconds % 86_400);
        // Gregorian date of a day's number, by eras of 400 years that begin in March.
        let z = days + 719_468;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        // All of these are small.
        let small = |value: u64| u32::try_from(value).unwrap_or(0);
        Self {
            unix_seconds,
            hundredth: small(nanos % 1_000_000_000 / 10_000_000),
            second: small(in_day % 60),
            minute: small(in_day / 60 % 60),
            hour: small(in_day / 3600),
            day: small(day),
            month: small(month),
            year: small(year),
            weekday: small((days + 4) % 7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let date = |seconds: i64| {
            let civil = Civil::of(FileTime::from_unix_nanos(seconds * 1_000_000_000));
            (civil.year, civil.month, civil.day, civil.weekday, civil.hour, civil.minute, civil.second)
        };
        assert_eq!(date(0), (1970, 1, 1, 4, 0, 0, 0));
        assert_eq!(date(951_782_400), (2000, 2, 29, 2, 0, 0, 0));
        assert_eq!(date(1_709_251_199), (2024, 2, 29, 4, 23, 59, 59));
        assert_eq!(date(4_102_444_800), (2100, 1, 1, 5, 0, 0, 0));
    }
}
