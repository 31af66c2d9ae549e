//! SCSI persistent reservations of an open block device: PERSISTENT RESERVE OUT by the kernel's own requests (`IOC_PR_*`, which reach
//! every path of a multipath device), PERSISTENT RESERVE IN by SG_IO. Made safe; each call waits for the device, for seconds if need be.
//!
//! A conflict is `EBADE`, as it is for a write that a reservation forbids. What the device or its driver does not know is
//! [`io::ErrorKind::Unsupported`].

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// `PR_WRITE_EXCLUSIVE_REG_ONLY` of linux/pr.h: its numbers are not those of SCSI.
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u32 = 3;
/// `PR_FL_IGNORE_KEY`.
const IGNORE_KEY: u32 = 1;

/// `struct pr_registration` of linux/pr.h.
#[repr(C)]
struct Registration {
    old_key: u64,
    new_key: u64,
    flags: u32,
    padding: u32,
}

/// `struct pr_reservation`.
#[repr(C)]
struct Reservation {
    key: u64,
    kind: u32,
    flags: u32,
}

/// `struct pr_preempt`. Its fields are called `old_key` and `new_key`; drivers send the first one as the sender's own key and the
/// second one as that of whoever goes (`sd_pr_preempt`, `nvme_pr_preempt`), whatever the kernel's documentation says.
#[repr(C)]
struct Preempt {
    key: u64,
    victim: u64,
    kind: u32,
    flags: u32,
}

/// `_IOW('p', number, T)`.
const fn request<T>(number: u32) -> libc::c_ulong {
    (1 << 30 | (size_of::<T>() as u32) << 16 | (b'p' as u32) << 8 | number) as libc::c_ulong
}

const REGISTER: libc::c_ulong = request::<Registration>(200);
const RESERVE: libc::c_ulong = request::<Reservation>(201);
const PREEMPT_ABORT: libc::c_ulong = request::<Preempt>(204);

/// How often a device may have news (a unit attention) before it does what it is asked to.
const NEWS: usize = 8;
/// What it is left after the second time and those that follow: one that resets has news for a while. A second in all.
const PAUSE: Duration = Duration::from_millis(150);
/// SAM-5 status codes.
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;

/// Registers this machine under `key`, whatever it was registered under, so that the device keeps it through a loss of power where it can;
/// with 0, ends its registration.
///
/// # Errors
/// Those of the module.
pub fn register(device: impl AsFd, key: u64) -> io::Result<()> {
    out(device, REGISTER, &Registration { old_key: 0, new_key: key, flags: IGNORE_KEY, padding: 0 })
}

/// Reserves the device (WRITE EXCLUSIVE – REGISTRANTS ONLY) as who is registered under `key`.
///
/// # Errors
/// Those of the module.
pub fn reserve(device: impl AsFd, key: u64) -> io::Result<()> {
    out(device, RESERVE, &Reservation { key, kind: WRITE_EXCLUSIVE_REGISTRANTS_ONLY, flags: 0 })
}

/// Ends all registrations under `victim` and what they have under way, and takes the reservation if one of them holds it.
///
/// # Errors
/// Those of the module.
pub fn preempt_and_abort(device: impl AsFd, key: u64, victim: u64) -> io::Result<()> {
    out(device, PREEMPT_ABORT, &Preempt { key, victim, kind: WRITE_EXCLUSIVE_REGISTRANTS_ONLY, flags: 0 })
}

fn out<T>(device: impl AsFd, request: libc::c_ulong, what: &T) -> io::Result<()> {
    let fd = device.as_fd().as_raw_fd();
    let send = || {
        // SAFETY: the request reads one `T`, the structure that it was made for, which outlives the call.
        match unsafe { libc::ioctl(fd, request, std::ptr::from_ref(what)) } {
            answer if answer < 0 => Err(not_known(io::Error::last_os_error())),
            answer => Ok(answer),
        }
    };
    sent(send, || read(&device, &TEST_UNIT_READY, &mut []).map(drop), pause)
}

/// Sends a request until the device has no news any more.
///
/// Kernels tell a check condition by its status alone: those before 6.2 always, later ones of most. So what the device does not know looks
/// as its news do, and as its trouble does. One that is ready, and has no news, and answers like that all the same, does not know the request.
fn sent(
    mut send: impl FnMut() -> io::Result<i32>,
    is_ready: impl FnOnce() -> io::Result<()>,
    mut pause: impl FnMut(usize),
) -> io::Result<()> {
    let mut last = 0;
    for tried in 0..NEWS {
        pause(tried);
        last = send()?;
        match verdict_of_out(last) {
            // None of these requests does anything else when it is sent again after a check condition.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
    let told = format!("the device answers each request about its reservation with status {last:#x}");
    let does_not_know = (last & 0xff) as u8 == CHECK_CONDITION && is_ready().is_ok();
    Err(io::Error::new(if does_not_know { io::ErrorKind::Unsupported } else { io::ErrorKind::Other }, told))
}

/// Waits before a request is sent for the so-manieth time.
#[expect(
    clippy::disallowed_methods,
    reason = "changes are asked for on a thread that waits for the device anyway"
)]
fn pause(tried: usize) {
    if tried > 1 {
        std::thread::sleep(PAUSE);
    }
}

/// What the kernel answers: 0, or the status of the command, beside what its layers have to say.
fn verdict_of_out(answer: i32) -> io::Result<()> {
    match (answer, (answer & 0xff) as u8) {
        (0, _) => Ok(()),
        (_, RESERVATION_CONFLICT) => Err(io::Error::from_raw_os_error(libc::EBADE)),
        (_, CHECK_CONDITION | BUSY) => Err(io::ErrorKind::Interrupted.into()),
        _ => Err(io::Error::other(format!("the request about its reservation ended with {answer:#x}"))),
    }
}

/// A driver that does not have a request says so in one of several ways.
fn not_known(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => {
            io::Error::new(io::ErrorKind::Unsupported, error)
        }
        _ => error,
    }
}

/// `struct sg_io_hdr` of scsi/sg.h.
#[repr(C)]
struct SgIo {
    interface: libc::c_int,
    direction: libc::c_int,
    command_len: u8,
    sense_room: u8,
    parts: u16,
    len: u32,
    data: *mut libc::c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: libc::c_int,
    user: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    message: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: libc::c_int,
    duration: u32,
    info: u32,
}

/// scsi/sg.h
const SG_IO: libc::c_ulong = 0x2285;
const FROM_DEVICE: libc::c_int = -3;
/// Longest wait for an answer.
const TIMEOUT_MS: u32 = 5_000;
const SENSE_BYTES: usize = 32;
/// SPC-4: no data, and nothing but whether it can be used.
const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// Sends a command of up to 16 bytes that reads (PERSISTENT RESERVE IN), and says how many bytes came.
///
/// # Errors
/// Those of the module.
pub fn read(device: impl AsFd, command: &[u8], answer: &mut [u8]) -> io::Result<usize> {
    let fd = device.as_fd().as_raw_fd();
    let (Ok(command_len), Ok(len)) = (u8::try_from(command.len()), u32::try_from(answer.len())) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    for _ in 0..NEWS {
        let mut sense = [0; SENSE_BYTES];
        let mut header = SgIo {
            interface: libc::c_int::from(b'S'),
            direction: FROM_DEVICE,
            command_len,
            sense_room: SENSE_BYTES as u8,
            parts: 0,
            len,
            data: answer.as_mut_ptr().cast(),
            command: command.as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout_ms: TIMEOUT_MS,
            flags: 0,
            pack_id: 0,
            user: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message: 0,
            sense_len: 0,
            host_status: 0,
            driver_status: 0,
            residual: 0,
            duration: 0,
            info: 0,
        };
        // SAFETY: the header is laid out as the kernel's; the three buffers that it points to have the lengths that it says and outlive the
        // call, after which the kernel does not touch them.
        if unsafe { libc::ioctl(fd, SG_IO, &raw mut header) } < 0 {
            return Err(not_known(io::Error::last_os_error()));
        }
        match verdict_of_in(header.status, header.host_status, &sense) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let missing = usize::try_from(header.residual).unwrap_or(0);
                return Ok(answer.len().saturating_sub(missing));
            }
        }
    }
    Err(io::Error::other("the device has news for each question about its reservation"))
}

/// How a command ended, by its status, what the host adapter says, and its sense data in either format.
fn verdict_of_in(status: u8, host: u16, sense: &[u8]) -> io::Result<()> {
    /// DID_NO_CONNECT, DID_BAD_TARGET.
    const GONE: [u16; 2] = [1, 4];
    const ILLEGAL_REQUEST: u8 = 5;
    const UNIT_ATTENTION: u8 = 6;
    let key = match sense {
        [format, _, key, ..] if matches!(format & 0x7e, 0x70) => key & 0x0f,
        [format, key, ..] if matches!(format & 0x7e, 0x72) => key & 0x0f,
        _ => 0,
    };
    match (status, host, key) {
        (0, 0, _) => Ok(()),
        (_, host, _) if GONE.contains(&host) => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        (RESERVATION_CONFLICT, ..) => Err(io::Error::from_raw_os_error(libc::EBADE)),
        (BUSY, ..) | (CHECK_CONDITION, _, UNIT_ATTENTION) => Err(io::ErrorKind::Interrupted.into()),
        (CHECK_CONDITION, _, ILLEGAL_REQUEST) => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::other(format!(
            "the question about its reservation ended with status {status:#x}, sense key {key:#x}, host status {host:#x}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernel() {
        // As a C compiler has IOC_PR_REGISTER, IOC_PR_RESERVE and IOC_PR_PREEMPT_ABORT.
        assert_eq!((REGISTER, RESERVE, PREEMPT_ABORT), (0x4018_70c8, 0x4010_70c9, 0x4018_70cc));
        assert_eq!((size_of::<Registration>(), size_of::<Reservation>(), size_of::<Preempt>()), (24, 16, 24));
        assert_eq!(std::mem::offset_of!(Preempt, victim), 8);
        // On machines of 64 bits, which are those that are supported.
        assert_eq!((size_of::<SgIo>(), std::mem::offset_of!(SgIo, status)), (88, 64));
    }

    #[test]
    fn verdicts() {
        let errno = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
        assert!(verdict_of_out(0).is_ok());
        assert_eq!(errno(verdict_of_out(0x18)), Some(libc::EBADE));
        // An older kernel, with its driver's byte.
        assert_eq!(kind(verdict_of_out(0x0800_0002)), Some(io::ErrorKind::Interrupted));
        assert_eq!(kind(verdict_of_out(0x000e_0000)), Some(io::ErrorKind::Other));
        let fixed = |key| [0x70, 0, key, 0, 0, 0, 0, 10];
        let descriptors = |key| [0x72, key, 0, 0];
        assert!(verdict_of_in(0, 0, &[0; 32]).is_ok());
        assert_eq!(kind(verdict_of_in(2, 0, &fixed(5))), Some(io::ErrorKind::Unsupported));
        assert_eq!(kind(verdict_of_in(2, 0, &descriptors(5))), Some(io::ErrorKind::Unsupported));
        assert_eq!(kind(verdict_of_in(2, 0, &fixed(6))), Some(io::ErrorKind::Interrupted));
        assert_eq!(errno(verdict_of_in(0x18, 0, &[])), Some(libc::EBADE));
        assert_eq!(errno(verdict_of_in(0, 1, &[])), Some(libc::ENODEV));
        assert_eq!(kind(verdict_of_in(2, 0, &[])), Some(io::ErrorKind::Other));
    }

    /// As kernels before 6.2 answer for a disk that has reservations and cannot preempt.
    #[test]
    fn a_plain_status_of_a_device_that_is_ready_says_that_it_does_not_know_the_request() {
        let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
        for answer in [0x02, 0x0800_0002] {
            assert_eq!(kind(sent(|| Ok(answer), || Ok(()), |_| ())), Some(io::ErrorKind::Unsupported));
            let not_ready = || Err(io::Error::other("it becomes ready"));
            assert_eq!(
                kind(sent(|| Ok(answer), not_ready, |_| ())),
                Some(io::ErrorKind::Other),
                "it may know it"
            );
            // News, and then an answer.
            let mut answers = [answer, answer, 0x18].into_iter();
            let conflict = sent(|| Ok(answers.next().unwrap_or_default()), || Ok(()), |_| ());
            assert_eq!(conflict.err().and_then(|error| error.raw_os_error()), Some(libc::EBADE));
        }
        assert_eq!(kind(sent(|| Ok(0x08), || Ok(()), |_| ())), Some(io::ErrorKind::Other), "it is busy");
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(kind(sent(refused, || Ok(()), |_| ())), Some(io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn what_is_no_disk_knows_none_of_it() {
        let file = std::fs::File::open("/dev/null").expect("there");
        for result in [register(&file, 1), reserve(&file, 1), preempt_and_abort(&file, 1, 2)] {
            assert_eq!(result.err().map(|error| error.kind()), Some(io::ErrorKind::Unsupported));
        }
        let read = read(&file, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 24, 0], &mut [0; 24]);
        assert_eq!(read.err().map(|error| error.kind()), Some(io::ErrorKind::Unsupported));
    }
}
