//! Every message there and back, cut short, and damaged at random.

use proptest::prelude::*;

use crate::command::{Command, Dialect};
use crate::fuzz::{self, samples};
use crate::header::{HEADER_BYTES, Header};
use crate::message::{Request, Response};
use crate::wire::Wire;

fn message(seed: &[u8]) -> Vec<u8> {
    [&[0; HEADER_BYTES], &seed[2..]].concat()
}

#[test]
fn there_is_a_request_of_every_command() {
    let mut commands: Vec<u8> = samples::requests().iter().map(|seed| seed[0]).collect();
    commands.dedup();
    assert_eq!(commands, (0..=0x12).collect::<Vec<u8>>());
}

#[test]
fn whole_requests_are_understood_and_cut_ones_are_not() {
    for seed in samples::requests() {
        let (command, whole) = (Command(u16::from(seed[0])), message(&seed));
        let request = Request::decode(command, &whole, Dialect::SMB_3_1_1).unwrap();
        assert_eq!(request.command(), command);
        fuzz::request(&seed);
        // One byte of padding stands for an empty buffer in some of them.
        for cut in 0..whole.len() - 1 {
            assert!(
                Request::decode(command, &whole[..cut], Dialect::SMB_3_1_1).is_err(),
                "{command:?} cut to {cut} of {}",
                whole.len()
            );
        }
    }
}

#[test]
fn whole_responses_are_understood_and_cut_ones_are_not() {
    for seed in samples::responses() {
        let header = Header { command: Command(u16::from(seed[0])), ..Header::default() };
        if seed[1] != 0 {
            continue;
        }
        let whole = message(&seed);
        Response::decode(&header, &whole).unwrap();
        fuzz::response(&seed);
        for cut in 0..whole.len() - 1 {
            assert!(Response::decode(&header, &whole[..cut]).is_err(), "{:?} cut to {cut}", header.command);
        }
    }
}

/// Structures of fixed size: any bytes decode, unless a structure size is among them, and come back the same way.
fn fixed<T: Wire + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = T::decode(bytes) {
        let written = value.to_bytes();
        assert_eq!(written.len(), T::SIZE);
        assert_eq!(T::decode(&written).as_ref(), Ok(&value));
    }
    assert!(T::decode(&bytes[..T::SIZE.min(bytes.len()) - 1]).is_err());
}

proptest! {
    #[test]
    fn fixed_structures_there_and_back(bytes in proptest::collection::vec(any::<u8>(), 600)) {
        use crate::fscc::{file::*, volume::*};
        use crate::fsctl::{copy::*, network::*, pipe::*, ranges::*};
        use crate::create::{contexts::*, handles::*, lease::*};
        fixed::<BasicInformation>(&bytes);
        fixed::<StandardInformation>(&bytes);
        fixed::<AllInformation>(&bytes);
        fixed::<NetworkOpenInformation>(&bytes);
        fixed::<AttributeTagInformation>(&bytes);
        fixed::<DispositionInformationEx>(&bytes);
        fixed::<CompressionInformation>(&bytes);
        fixed::<StandardLinkInformation>(&bytes);
        fixed::<IdInformation>(&bytes);
        fixed::<PipeLocalInformation>(&bytes);
        fixed::<PipeRemoteInformation>(&bytes);
        fixed::<SizeInformation>(&bytes);
        fixed::<FullSizeInformation>(&bytes);
        fixed::<ControlInformation>(&bytes);
        fixed::<ObjectIdInformation>(&bytes);
        fixed::<SectorSizeInformation>(&bytes);
        fixed::<DuplicateExtentsEx>(&bytes);
        fixed::<OffloadReadInput>(&bytes);
        fixed::<OffloadReadOutput>(&bytes);
        fixed::<OffloadWriteInput>(&bytes);
        fixed::<OffloadWriteOutput>(&bytes);
        fixed::<CopyReply>(&bytes);
        fixed::<ResumeKeyReply>(&bytes);
        fixed::<ValidateNegotiateReply>(&bytes);
        fixed::<Resiliency>(&bytes);
        fixed::<PipePeek>(&bytes);
        fixed::<ZeroData>(&bytes);
        fixed::<AllocatedRange>(&bytes);
        fixed::<RegionInput>(&bytes);
        fixed::<GetIntegrity>(&bytes);
        fixed::<SetIntegrityEx>(&bytes);
        fixed::<ObjectIdBuffer>(&bytes);
        fixed::<LeaseV1>(&bytes);
        fixed::<LeaseV2>(&bytes);
        fixed::<DurableRequestV2>(&bytes);
        fixed::<DurableReconnectV2>(&bytes);
        fixed::<AppInstanceVersion>(&bytes);
        fixed::<MaximalAccessReply>(&bytes);
        fixed::<OnDiskIdReply>(&bytes);
    }

    #[test]
    fn headers_there_and_back(mut bytes in proptest::collection::vec(any::<u8>(), 64)) {
        bytes[..6].copy_from_slice(b"\xfeSMB\x40\x00");
        let header = Header::decode(&bytes).unwrap();
        prop_assert_eq!(header.encode().to_vec(), bytes);
    }

    #[test]
    fn damaged_messages_do_no_harm(
        which in any::<prop::sample::Index>(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for (seeds, target) in [
            (samples::requests(), fuzz::request as fn(&[u8])),
            (samples::responses(), fuzz::response),
            (vec![samples::create_contexts()], fuzz::create_contexts),
            (vec![samples::negotiate_context_list()], fuzz::negotiate_contexts),
        ] {
            let mut bytes = which.get(&seeds).clone();
            for (at, value) in &hits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            target(&bytes);
            target(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn rubbish_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        for target in [
            fuzz::packets, fuzz::request, fuzz::response, fuzz::create_contexts, fuzz::negotiate_contexts,
            fuzz::security_descriptor, fuzz::fsctl, fuzz::information,
        ] {
            target(&bytes);
        }
    }
}
