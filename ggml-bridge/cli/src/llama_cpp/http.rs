//! Requests to a server on a socket of this machine, one a connection.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, 200 when all is well.
    pub status: u16,
    /// The rest: headers are left out, and what else is around the content is not.
    pub content: String,
}

/// Sends `content` as JSON to `path`, or asks for it without content, and waits for the answer.
///
/// # Errors
/// The connection ends, or what comes is not an answer.
pub fn request(socket: &Path, path: &str, content: Option<&str>) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    let (method, content) = content.map_or(("GET", ""), |content| ("POST", content));
    let length = content.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{content}"
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    answer(&String::from_utf8_lossy(&bytes)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn answer(text: &str) -> Option<Answer> {
    let (head, content) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, content: content.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::os::unix::net::UnixListener;

    #[rstest]
    #[case::good("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\n", Some((200, "{}")))]
    #[case::refused("HTTP/1.1 400 Bad Request\r\n\r\n", Some((400, "")))]
    #[case::cut_off("HTTP/1.1 200 OK\r\n", None)]
    #[case::something_else("220 mail\r\n\r\n", None)]
    #[case::nothing("", None)]
    fn answers(#[case] text: &'static str, #[case] expected: Option<(u16, &str)>) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            String::from_utf8(asked[..length].to_vec()).unwrap()
        });
        let found = request(&socket, "/completion", Some("[1]"));
        let asked = server.join().unwrap();
        assert!(
            asked.starts_with("POST /completion HTTP/1.1\r\n") && asked.ends_with("Content-Length: 3\r\n\r\n[1]"),
            "{asked}"
        );
        assert_eq!(found.ok().map(|answer| (answer.status, answer.content)), expected.map(|(s, c)| (s, c.to_owned())));
    }
}
