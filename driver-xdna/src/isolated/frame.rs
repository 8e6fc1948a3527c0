//! Frames: how messages and descriptors cross the socket.
//!
//! A frame is an 8-byte header and a payload. The header holds two little-endian 32-bit numbers: the length of the payload
//! and how many descriptors travel with the frame, 0 or 1. The descriptor is ancillary data of the header's first byte. A
//! stream socket never returns bytes of two such sends at once, so reading exactly one header and then exactly its payload
//! keeps descriptors with their frames.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;
use thiserror::Error;

/// Longest payload. A chain of 64 dispatches with a dozen arguments each is below 32 KiB.
pub(super) const MAX_PAYLOAD: usize = 1 << 20;
/// Length of the header.
pub(super) const HEADER: usize = 8;

/// Why a frame did not get through.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum FrameError {
    #[error("the other side closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Io(Errno),
    #[error("malformed frame: {0}")]
    Malformed(String),
    #[error("the other side does not read")]
    Deadline,
}

impl From<Errno> for FrameError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Io(other),
        }
    }
}

/// Fills in the header of a frame that starts with [`HEADER`] bytes of room.
fn seal(frame: &mut [u8], descriptors: u32) -> Result<(), FrameError> {
    let payload = frame.len() - HEADER;
    match u32::try_from(payload) {
        Ok(length) if payload <= MAX_PAYLOAD => {
            frame[..4].copy_from_slice(&length.to_le_bytes());
            frame[4..HEADER].copy_from_slice(&descriptors.to_le_bytes());
            Ok(())
        }
        _ => Err(FrameError::Malformed(format!("a payload of {payload} bytes; the most is {MAX_PAYLOAD}"))),
    }
}

/// Sends a frame. `frame` starts with [`HEADER`] bytes of room for its header. Without a deadline it waits as long as the
/// other side takes. After an error other than `Malformed` the stream is of no further use.
pub(super) fn send_frame(
    stream: BorrowedFd<'_>,
    frame: &mut [u8],
    descriptor: Option<BorrowedFd<'_>>,
    deadline: Option<Instant>,
) -> Result<(), FrameError> {
    seal(frame, descriptor.is_some().into())?;
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut sent = 0;
    while sent < frame.len() {
        let result = match descriptor {
            Some(descriptor) if sent == 0 => {
                let descriptors = [descriptor];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                    return Err(FrameError::Malformed("no room for its descriptor".to_owned()));
                }
                sendmsg(stream, &[IoSlice::new(frame)], &mut ancillary, flags)
            }
            _ => send(stream, &frame[sent..], flags),
        };
        match result {
            Ok(count) => sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_writable(stream, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_writable(stream: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<(), FrameError> {
    let timeout = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
        Some(left) if left.is_zero() => return Err(FrameError::Deadline),
        Some(left) => Some(Timespec::try_from(left).map_err(|_| FrameError::Deadline)?),
        None => None,
    };
    match poll(&mut [PollFd::from_borrowed_fd(stream, PollFlags::OUT)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Receives a frame: its payload into `payload`, which is overwritten, and its descriptor. Waits as long as it takes.
pub(super) fn receive_frame(stream: BorrowedFd<'_>, payload: &mut Vec<u8>) -> Result<Option<OwnedFd>, FrameError> {
    let mut header = [0; HEADER];
    let mut descriptors = Vec::new();
    let mut filled = 0;
    while filled < HEADER {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut header[filled..])];
        let message = match recvmsg(stream, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => message,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for received in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = received {
                descriptors.extend(received);
            }
        }
        if message.flags.contains(ReturnFlags::CTRUNC) {
            return Err(FrameError::Malformed(
                "not all of its descriptors arrived: it has more than one, or this process has too many open files"
                    .to_owned(),
            ));
        }
        match message.bytes {
            0 if filled == 0 => return Err(FrameError::Closed),
            0 => return Err(FrameError::Malformed(format!("it ended after {filled} bytes of its header"))),
            count => filled += count,
        }
    }
    let [l0, l1, l2, l3, d0, d1, d2, d3] = header;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let announced = u32::from_le_bytes([d0, d1, d2, d3]);
    if announced > 1 || announced as usize != descriptors.len() {
        return Err(FrameError::Malformed(format!(
            "it announces {announced} descriptors (at most 1 is allowed) and came with {}",
            descriptors.len()
        )));
    }
    let length = match usize::try_from(length) {
        Ok(length) if length <= MAX_PAYLOAD => length,
        _ => return Err(FrameError::Malformed(format!("it announces {length} bytes; the most is {MAX_PAYLOAD}"))),
    };
    payload.clear();
    payload.resize(length, 0);
    let mut filled = 0;
    while filled < length {
        match recv(stream, &mut payload[filled..], RecvFlags::empty()) {
            Ok((0, _)) => {
                return Err(FrameError::Malformed(format!("it ended after {filled} of its {length} bytes")));
            }
            Ok((count, _)) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(descriptors.pop())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn framed(payload: &[u8]) -> Vec<u8> {
        [&[0; HEADER], payload].concat()
    }

    #[test]
    fn frames_and_descriptors_stay_together() {
        let (a, b) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        for with_descriptor in [false, true, true, false] {
            let descriptor = with_descriptor.then_some(file.as_fd());
            send_frame(a.as_fd(), &mut framed(&[u8::from(with_descriptor); 3]), descriptor, None).unwrap();
        }
        let mut payload = Vec::new();
        for with_descriptor in [false, true, true, false] {
            let descriptor = receive_frame(b.as_fd(), &mut payload).unwrap();
            assert_eq!(descriptor.is_some(), with_descriptor);
            assert_eq!(payload, [u8::from(with_descriptor); 3]);
        }
        drop(a);
        assert_eq!(receive_frame(b.as_fd(), &mut payload).unwrap_err(), FrameError::Closed);
    }

    #[test]
    fn the_longest_payload_gets_through_and_one_more_byte_is_not_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut payload = Vec::new();
            receive_frame(b.as_fd(), &mut payload).map(|_| payload.len())
        });
        let error = send_frame(a.as_fd(), &mut vec![0; HEADER + MAX_PAYLOAD + 1], None, None).unwrap_err();
        assert!(matches!(error, FrameError::Malformed(_)), "{error}");
        send_frame(a.as_fd(), &mut vec![0; HEADER + MAX_PAYLOAD], None, None).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(MAX_PAYLOAD));
    }

    #[rstest]
    #[case::half_a_header(&[1, 0, 0], "after 3 bytes of its header")]
    #[case::half_a_payload(&[4, 0, 0, 0, 0, 0, 0, 0, 9], "after 1 of its 4 bytes")]
    #[case::too_long(&[0, 0, 0x20, 0, 0, 0, 0, 0], "announces 2097152 bytes")]
    #[case::many_descriptors(&[0, 0, 0, 0, 2, 0, 0, 0], "announces 2 descriptors")]
    #[case::no_descriptor(&[0, 0, 0, 0, 1, 0, 0, 0], "came with 0")]
    fn malformed_frames_are_errors(#[case] bytes: &[u8], #[case] reason: &str) {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(bytes).unwrap();
        drop(a);
        let error = receive_frame(b.as_fd(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn a_side_that_does_not_read_is_given_up_at_the_deadline() {
        let (a, _b) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_millis(50);
        let mut frame = vec![0; HEADER + MAX_PAYLOAD];
        let error = send_frame(a.as_fd(), &mut frame, None, Some(deadline)).unwrap_err();
        assert_eq!(error, FrameError::Deadline);
        assert!(Instant::now() >= deadline);
    }

    #[test]
    fn a_side_that_is_gone_is_an_error_and_no_signal() {
        let (a, b) = UnixStream::pair().unwrap();
        drop(b);
        assert_eq!(send_frame(a.as_fd(), &mut framed(b"x"), None, None).unwrap_err(), FrameError::Closed);
    }
}
