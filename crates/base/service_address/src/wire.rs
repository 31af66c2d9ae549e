//! Sending and receiving. Blocks: not for threads that serve.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use pnet_datalink::{Channel, Config, DataLinkReceiver, DataLinkSender, NetworkInterface};

use crate::frames::{Mac, announcement, claimant, question};
use crate::{AddressError, Interface};

const RAW: &str = "CAP_NET_RAW";
/// How often somebody is asked while an answer is waited for (RFC 5227 has three probes).
const QUESTIONS: u32 = 3;
/// Longest that one look for a frame takes.
const LOOK: Duration = Duration::from_millis(50);

/// Where frames go, and where they come from.
type Ends = (Box<dyn DataLinkSender>, Box<dyn DataLinkReceiver>);

fn wire(source: io::Error) -> AddressError {
    AddressError::of("frames cannot be sent", RAW, source)
}

/// An interface of Ethernet's kind; `None` for one that has no MAC addresses (loopback, tunnels).
fn ethernet(on: &Interface) -> Option<(NetworkInterface, Mac)> {
    let found = pnet_datalink::interfaces().into_iter().find(|each| each.index == on.index)?;
    let mac = found.mac.filter(|mac| *mac != pnet_datalink::MacAddr::zero())?;
    Some((found, mac.octets()))
}

fn channel(on: &NetworkInterface) -> Result<Ends, AddressError> {
    let config = Config {
        read_timeout: Some(LOOK),
        write_timeout: Some(LOOK),
        promiscuous: false,
        ..Config::default()
    };
    match pnet_datalink::channel(on, config).map_err(wire)? {
        Channel::Ethernet(send, receive) => Ok((send, receive)),
        _ => Err(wire(io::Error::from(io::ErrorKind::Unsupported))),
    }
}

fn send(sender: &mut dyn DataLinkSender, frame: &[u8]) -> Result<(), AddressError> {
    sender.send_to(frame, None).unwrap_or(Ok(())).map_err(wire)
}

/// Tells the network that an address is on this interface now. Where there are no MAC addresses, nobody needs to be told.
///
/// # Errors
/// When the process may not send frames, or the kernel fails.
pub fn announce(on: &Interface, address: IpAddr) -> Result<(), AddressError> {
    let Some((interface, mac)) = ethernet(on) else { return Ok(()) };
    let (mut sender, _) = channel(&interface)?;
    send(&mut *sender, &announcement(mac, address))
}

/// Asks the network whether some other machine has an address, and waits so long for an answer: its MAC address, if one comes.
///
/// # Errors
/// As [`announce`].
pub fn probe(on: &Interface, address: IpAddr, wait: Duration) -> Result<Option<String>, AddressError> {
    let Some((interface, mac)) = ethernet(on) else { return Ok(None) };
    let (mut sender, mut receiver) = channel(&interface)?;
    let each = wait / QUESTIONS;
    for _ in 0..QUESTIONS {
        send(&mut *sender, &question(mac, address))?;
        #[expect(clippy::disallowed_methods, reason = "a real network, on a thread that may wait")]
        let begun = Instant::now();
        while begun.elapsed() < each {
            match receiver.next() {
                Ok(frame) => {
                    if let Some(other) = claimant(frame, mac, address) {
                        return Ok(Some(other.map(|byte| format!("{byte:02x}")).join(":")));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => return Err(wire(error)),
            }
        }
    }
    Ok(None)
}
