//! Frames from a stream.

use std::io;

use aligned_buffer::{IoBuf, SharedBuf};
use byte_codec::DecodeError;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::wire::{PREFIX, prefix};

pub(crate) fn invalid(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a frame {error}"))
}

/// The head of the next frame, and how much data follows it.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, usize)> {
    let mut first = [0; PREFIX];
    stream.read_exact(&mut first).await?;
    let (head, data) = prefix(first).map_err(invalid)?;
    let mut bytes = vec![0; head];
    stream.read_exact(&mut bytes).await?;
    Ok((bytes, data))
}

/// The data of a frame.
pub(crate) async fn read_data(stream: &mut (impl AsyncRead + Unpin), len: usize) -> io::Result<SharedBuf> {
    let mut data = IoBuf::new(len);
    stream.read_exact(&mut data).await?;
    Ok(data.freeze())
}
